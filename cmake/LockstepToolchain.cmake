# Compiler flags that every target shares.
add_library(lockstep_flags INTERFACE)
set(_level $<TARGET_PROPERTY:LOCKSTEP_OPTIMIZATION>)
target_compile_options(lockstep_flags INTERFACE -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers
                       # LOCKSTEP_OPTIMIZATION: the level at which a target is compiled (-O3 if it has none).
                       $<$<CONFIG:Release>:$<IF:$<BOOL:${_level}>,${_level},-O3>>)
# With -Og, g++ takes the values of LibTorch's empty optionals for uninitialized ones.
target_compile_options(lockstep_flags INTERFACE
  $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<STREQUAL:${_level},-Og>>:-Wno-maybe-uninitialized>)
# g++ collects the garbage of its own heap each time the heap has grown by a fixed share. For the unit of a room that
# takes up to a tenth of the compilation, so g++ first collects when the heap has reached this size, in KiB.
target_compile_options(lockstep_flags INTERFACE
                       $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=1000000>)
# Floating-point contraction would let two compilations of one sum differ in the last bit; ranks must
# agree on every bit, and the oracles compare with PyTorch.
target_compile_options(lockstep_flags INTERFACE -ffp-contract=off)
if(NOT LOCKSTEP_UNITY_FILES EQUAL 1)
  # A unity file includes .cpp files, and g++ takes their private types for types of a header.
  target_compile_options(lockstep_flags INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
endif()

if(LOCKSTEP_SANITIZE)
  # No recovery, because a test would pass in spite of errors that UBSan only prints.
  add_compile_options(-fsanitize=${LOCKSTEP_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${LOCKSTEP_SANITIZE})
  # Compiles Highway's kernels only without vectors, for AVX2 and for AVX-512. The other instruction sets would nearly
  # double the kernels' compilation time; the release tree compiles and tests all of them.
  add_compile_definitions(HWY_DISABLED_TARGETS=HWY_SSSE3|HWY_SSE4|HWY_AVX3_DL)
endif()

find_program(LOCKSTEP_CCACHE ccache)
if(LOCKSTEP_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Without the sloppiness and the flags below, ccache refuses precompiled headers. With CCACHE_DEPEND it takes the list of
  # headers from the compiler and does not preprocess each unit before its compilation, which takes about a second.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_DEPEND=1 ${LOCKSTEP_CCACHE})
  if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
    add_compile_options("SHELL:-Xclang -fno-pch-timestamp")
  else()
    add_compile_options(-fpch-preprocess)
  endif()
endif()
