# lockstep_room(NAME [INTERNAL] [TORCH] [OPTIMIZATION level] SOURCES file... [DEPENDS target...] [LIBRARIES library...])
#
# Defines the static library lockstep_NAME (alias lockstep::NAME) for one room of lockstep/. With
# TORCH the room uses LibTorch through a precompiled header. Without TORCH the room cannot include a LibTorch
# header even by accident, because the include path is missing.
# LOCKSTEP_UNITY_FILES of its files (0: all) form one translation unit, so shared headers are compiled only once.
# Names in unnamed namespaces must therefore be unique within a target.
# INTERNAL: the room is part of the program and not of the library that `cmake --install` installs.
# OPTIMIZATION: the level at which the room is compiled (default -O3, for loops over elements). -O2 takes four fifths of
# the time that -O3 takes, -O1 two thirds and -Og half. Each room has the quickest level with which the program's
# benchmarks do not change: -Og for commands, reports and the Trainer, -O1 for what runs in each step, and -O2 for what
# runs in each call of a collective.
# DEPENDS (other rooms) are public: their headers appear in ours. LIBRARIES are private.
function(lockstep_room name)
  cmake_parse_arguments(arg "INTERNAL;TORCH" "OPTIMIZATION" "SOURCES;DEPENDS;LIBRARIES" ${ARGN})
  add_library(lockstep_${name} STATIC ${arg_SOURCES})
  add_library(lockstep::${name} ALIAS lockstep_${name})
  set_target_properties(lockstep_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(lockstep_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(lockstep_${name} PUBLIC cxx_std_20)
  set_target_properties(lockstep_${name} PROPERTIES LOCKSTEP_OPTIMIZATION "${arg_OPTIMIZATION}")
  target_link_libraries(lockstep_${name} PUBLIC ${arg_DEPENDS}
                        PRIVATE $<BUILD_INTERFACE:lockstep_flags> ${arg_LIBRARIES})
  lockstep_unite_files(lockstep_${name})
  if(arg_TORCH)
    target_link_libraries(lockstep_${name} PUBLIC ${LOCKSTEP_TORCH_TARGET})
    lockstep_use_torch_pch(lockstep_${name})
  endif()
  if(NOT arg_INTERNAL)
    set_property(GLOBAL APPEND PROPERTY LOCKSTEP_ROOMS lockstep_${name})
  endif()
endfunction()

# lockstep_unite_files(TARGET [FILES]): joins sources into units of LOCKSTEP_UNITY_FILES files, or of FILES files
# if that variable is 0.
function(lockstep_unite_files target)
  set(files "${LOCKSTEP_UNITY_FILES}")
  if(files STREQUAL "")
    set(files 0)
  endif()
  if(ARGC GREATER 1 AND files EQUAL 0)
    set(files ${ARGV1})
  endif()
  if(NOT files EQUAL 1)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${files})
  endif()
endfunction()

# lockstep_program(NAME [OPTIMIZATION level] SOURCES file... LIBRARIES target...): an executable that uses LibTorch. It is
# built last, and one large unit would then leave the other processors idle.
function(lockstep_program name)
  cmake_parse_arguments(arg "" "OPTIMIZATION" "SOURCES;LIBRARIES" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  set_target_properties(${name} PROPERTIES LOCKSTEP_OPTIMIZATION "${arg_OPTIMIZATION}")
  target_link_libraries(${name} PRIVATE lockstep_flags ${arg_LIBRARIES})
  lockstep_unite_files(${name} 18)
  lockstep_use_torch_pch(${name})
endfunction()
