# What `cmake --install` puts where: the rooms as lockstep::ROOM, lockstep::lockstep for all of them, the
# public headers, the program. A user's project needs find_package(lockstep) and this prefix and LibTorch's in
# CMAKE_PREFIX_PATH; one without CMake asks pkg-config.
include(CMakePackageConfigHelpers)
get_property(_installed_rooms GLOBAL PROPERTY LOCKSTEP_ROOMS)

add_library(lockstep_lockstep INTERFACE)
add_library(lockstep::lockstep ALIAS lockstep_lockstep)
set_target_properties(lockstep_lockstep PROPERTIES EXPORT_NAME lockstep)
target_link_libraries(lockstep_lockstep INTERFACE ${_installed_rooms})

set(_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)
install(TARGETS ${_installed_rooms} lockstep_lockstep EXPORT lockstep)
install(EXPORT lockstep NAMESPACE lockstep:: FILE lockstepTargets.cmake DESTINATION ${_package_dir})
install(CODE "set(SOURCE_DIR [==[${PROJECT_SOURCE_DIR}]==])\nset(INCLUDE_DIR [==[${CMAKE_INSTALL_INCLUDEDIR}]==])")
install(SCRIPT ${CMAKE_CURRENT_LIST_DIR}/install_headers.cmake)

set(LOCKSTEP_LIBTORCH_LINK ${CMAKE_INSTALL_LIBDIR}/lockstep/libtorch)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/lockstepConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/lockstepConfig.cmake INSTALL_DESTINATION ${_package_dir}
                              PATH_VARS LOCKSTEP_LIBTORCH_LINK)
cmake_path(GET LOCKSTEP_TORCH_LIBRARY_DIR PARENT_PATH _torch_root)
foreach(_header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
  if(EXISTS ${_torch_root}/include/${_header})
    file(STRINGS ${_torch_root}/include/${_header} _numbers REGEX "^#define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
    list(TRANSFORM _numbers REPLACE "^[^0-9]*([0-9]+).*" "\\1")
    list(JOIN _numbers "." LOCKSTEP_TORCH_VERSION)
    break()
  endif()
endforeach()
configure_file(${CMAKE_CURRENT_LIST_DIR}/lockstep-link-libtorch.in ${PROJECT_BINARY_DIR}/lockstep-link-libtorch @ONLY)
install(PROGRAMS ${PROJECT_BINARY_DIR}/lockstep-link-libtorch DESTINATION ${CMAKE_INSTALL_BINDIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/lockstepConfig.cmake ${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake
        ${CMAKE_CURRENT_LIST_DIR}/LockstepLibTorch.cmake DESTINATION ${_package_dir})

include(${CMAKE_CURRENT_LIST_DIR}/LockstepPkgConfig.cmake)

if(TARGET lockstep_cli)
  # CMake keeps only folders outside of the project by itself, and LibTorch may be in .deps/. The other
  # folder is the downloader's.
  file(RELATIVE_PATH _bin_to_lib ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(lockstep_cli PROPERTIES
    INSTALL_RPATH "${LOCKSTEP_TORCH_LIBRARY_DIR};$ORIGIN/${_bin_to_lib}/lockstep/libtorch/lib;$ORIGIN/${_bin_to_lib}/lockstep")
endif()

# What there is to install, for `make package`: not the tests and benchmarks.
add_custom_target(lockstep_installed DEPENDS ${_installed_rooms})
foreach(target lockstep_cli lockstep_dali lockstep_download lockstep_http)
  if(TARGET ${target})
    add_dependencies(lockstep_installed ${target})
  endif()
endforeach()
