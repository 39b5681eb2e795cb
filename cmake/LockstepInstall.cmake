# Defines what `cmake --install` installs: the rooms as lockstep::ROOM, lockstep::lockstep for all of them, lockstep::pch,
# which also precompiles the headers that nearly every user's file includes, the public headers and the program. With LOCKSTEP_SHARED, lockstep::lockstep is the shared library, which takes the place of the
# rooms. A user's project needs find_package(lockstep), with this prefix in CMAKE_PREFIX_PATH. A project without
# CMake uses pkg-config.
#
# The files that differ between the two kinds are in the components `static` and `shared`. `cmake --install` leaves out the
# kind that was not chosen, unless its component is named, as a test does.
include(CMakePackageConfigHelpers)
set(_static_component COMPONENT static)
set(_shared_component COMPONENT shared)
if(LOCKSTEP_SHARED)
  list(APPEND _static_component EXCLUDE_FROM_ALL)
else()
  list(APPEND _shared_component EXCLUDE_FROM_ALL)
endif()
get_property(_installed_rooms GLOBAL PROPERTY LOCKSTEP_ROOMS)

add_library(lockstep_lockstep INTERFACE)
add_library(lockstep::lockstep ALIAS lockstep_lockstep)
set_target_properties(lockstep_lockstep PROPERTIES EXPORT_NAME lockstep)
target_link_libraries(lockstep_lockstep INTERFACE ${_installed_rooms})

# The two kinds export targets with the same names.
foreach(_kind static shared)
  add_library(lockstep_pch_${_kind} INTERFACE)
  set_target_properties(lockstep_pch_${_kind} PROPERTIES EXPORT_NAME pch)
  target_precompile_headers(lockstep_pch_${_kind} INTERFACE <torch/torch.h> <lockstep/lockstep.h>)
endforeach()
target_link_libraries(lockstep_pch_static INTERFACE lockstep_lockstep)
target_link_libraries(lockstep_pch_shared INTERFACE lockstep_shared)
add_library(lockstep::pch ALIAS lockstep_pch_static)

set(_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)
install(TARGETS ${_installed_rooms} lockstep_lockstep lockstep_pch_static EXPORT lockstep_static ARCHIVE ${_static_component})
install(EXPORT lockstep_static NAMESPACE lockstep:: FILE lockstepStaticTargets.cmake DESTINATION ${_package_dir}
        ${_static_component})
install(TARGETS lockstep_shared lockstep_pch_shared EXPORT lockstep_shared LIBRARY ${_shared_component})
install(EXPORT lockstep_shared NAMESPACE lockstep:: FILE lockstepSharedTargets.cmake DESTINATION ${_package_dir}
        ${_shared_component})
install(CODE "set(SOURCE_DIR [==[${PROJECT_SOURCE_DIR}]==])\nset(INCLUDE_DIR [==[${CMAKE_INSTALL_INCLUDEDIR}]==])")
install(SCRIPT ${CMAKE_CURRENT_LIST_DIR}/install_headers.cmake)

cmake_path(GET LOCKSTEP_TORCH_LIBRARY_DIR PARENT_PATH _torch_root)
set(LOCKSTEP_LIBTORCH_LINK ${CMAKE_INSTALL_LIBDIR}/lockstep/libtorch)
# A program that links the static libraries must also link the libraries that these need.
set(LOCKSTEP_FIND_STATIC "find_dependency(Threads)\nfind_dependency(OpenSSL COMPONENTS Crypto)")
set(LOCKSTEP_FIND_SHARED "")
foreach(_kind Static Shared)
  string(TOLOWER ${_kind} _component)
  string(TOUPPER ${_kind} _upper)
  set(LOCKSTEP_PACKAGE_KIND ${_kind})
  set(LOCKSTEP_FIND_DEPENDENCIES "${LOCKSTEP_FIND_${_upper}}")
  configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/lockstepConfig.cmake.in
                                ${PROJECT_BINARY_DIR}/${_component}/lockstepConfig.cmake
                                INSTALL_DESTINATION ${_package_dir} PATH_VARS LOCKSTEP_LIBTORCH_LINK)
  install(FILES ${PROJECT_BINARY_DIR}/${_component}/lockstepConfig.cmake DESTINATION ${_package_dir}
          ${_${_component}_component})
endforeach()
configure_file(${CMAKE_CURRENT_LIST_DIR}/lockstep-link-libtorch.in ${PROJECT_BINARY_DIR}/lockstep-link-libtorch @ONLY)
install(PROGRAMS ${PROJECT_BINARY_DIR}/lockstep-link-libtorch DESTINATION ${CMAKE_INSTALL_BINDIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake
        ${CMAKE_CURRENT_LIST_DIR}/LockstepLibTorch.cmake DESTINATION ${_package_dir})

include(${CMAKE_CURRENT_LIST_DIR}/LockstepPkgConfig.cmake)

if(TARGET lockstep_cli)
  # CMake itself keeps only run-path folders outside the project, and LibTorch may be in .deps/. lib/lockstep holds the
  # downloader's module.
  file(RELATIVE_PATH _bin_to_lib ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(lockstep_cli PROPERTIES
    INSTALL_RPATH "${LOCKSTEP_TORCH_LIBRARY_DIR};$ORIGIN/${_bin_to_lib}/lockstep/libtorch/lib;$ORIGIN/${_bin_to_lib}/lockstep")
endif()

# Everything that is installed, for `make package`; the tests and benchmarks are not.
set(_installed_libraries ${_installed_rooms})
if(LOCKSTEP_SHARED)
  set(_installed_libraries lockstep_shared)
endif()
add_custom_target(lockstep_installed DEPENDS ${_installed_libraries})
foreach(target lockstep_cli lockstep_dali lockstep_download lockstep_http)
  if(TARGET ${target})
    add_dependencies(lockstep_installed ${target})
  endif()
endforeach()
