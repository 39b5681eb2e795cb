# lockstep_room(NAME [INTERNAL] [TORCH header] SOURCES file... [DEPENDS target...] [LIBRARIES library...])
#
# Defines the static library lockstep_NAME (alias lockstep::NAME) for one room of lockstep/. With
# TORCH the room sees LibTorch, of which it shares that precompiled header; without it the room cannot
# include a LibTorch header even by accident, because the include path is not there.
# LOCKSTEP_UNITY_FILES of its files are one translation unit, which is compiled once for all that they
# include: names in unnamed namespaces must be unique within a target.
# INTERNAL: the room is part of the program and not of the library that `cmake --install` installs.
# DEPENDS (other rooms) are public: their headers appear in ours. LIBRARIES are private.
function(lockstep_room name)
  cmake_parse_arguments(arg "INTERNAL" "TORCH" "SOURCES;DEPENDS;LIBRARIES" ${ARGN})
  add_library(lockstep_${name} STATIC ${arg_SOURCES})
  add_library(lockstep::${name} ALIAS lockstep_${name})
  set_target_properties(lockstep_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(lockstep_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(lockstep_${name} PUBLIC cxx_std_20)
  target_link_libraries(lockstep_${name} PUBLIC ${arg_DEPENDS}
                        PRIVATE $<BUILD_INTERFACE:lockstep_flags> ${arg_LIBRARIES})
  if(NOT LOCKSTEP_SANITIZE MATCHES address)  # there each file by itself, in which a missing #include shows
    lockstep_unite_files(lockstep_${name})
  endif()
  if(arg_TORCH)
    target_link_libraries(lockstep_${name} PUBLIC ${LOCKSTEP_TORCH_TARGET})
    lockstep_use_torch_pch(lockstep_${name} ${arg_TORCH})
  endif()
  if(NOT arg_INTERNAL)
    set_property(GLOBAL APPEND PROPERTY LOCKSTEP_ROOMS lockstep_${name})
  endif()
endfunction()

function(lockstep_unite_files target)
  if(NOT LOCKSTEP_UNITY_FILES EQUAL 1)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${LOCKSTEP_UNITY_FILES})
  endif()
endfunction()

# lockstep_program(NAME TORCH header SOURCES file... LIBRARIES target...): an executable that uses LibTorch.
function(lockstep_program name)
  cmake_parse_arguments(arg "" "TORCH" "SOURCES;LIBRARIES" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE lockstep_flags ${arg_LIBRARIES})
  lockstep_unite_files(${name})
  lockstep_use_torch_pch(${name} ${arg_TORCH})
endfunction()
