# lockstep_shared: the rooms that are installed, as one library liblockstep.so.
#
# It is linked from the objects of the static libraries, so that no source is compiled twice. It exports what is marked
# with LOCKSTEP_API (lockstep/core/export.h): hidden visibility removes our other names, and the version script removes the
# names of third-party static libraries and the instances of templates of LibTorch and the standard library.
#
# It is built by default if it is to be installed or tested.
get_property(_shared_rooms GLOBAL PROPERTY LOCKSTEP_ROOMS)
list(TRANSFORM _shared_rooms REPLACE ".+" "$<TARGET_OBJECTS:\\0>" OUTPUT_VARIABLE _shared_objects)
add_library(lockstep_shared SHARED ${_shared_objects})
if(NOT LOCKSTEP_SHARED AND (NOT LOCKSTEP_TESTS OR LOCKSTEP_GPU_KIT))
  set_target_properties(lockstep_shared PROPERTIES EXCLUDE_FROM_ALL ON)
endif()

# Before 1.0 a minor version may change the interface, afterwards only a major one (docs/public_api.md).
set(_soversion ${PROJECT_VERSION_MAJOR})
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(_soversion ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
endif()
set(_exported_names ${CMAKE_CURRENT_LIST_DIR}/exported_names.map)
# The library finds LibTorch and, for dlopen(), the modules by its own run path, wherever the package is installed.
set_target_properties(lockstep_shared PROPERTIES
  OUTPUT_NAME lockstep EXPORT_NAME lockstep VERSION ${PROJECT_VERSION} SOVERSION ${_soversion}
  LINKER_LANGUAGE CXX LINK_DEPENDS ${_exported_names}
  INSTALL_RPATH "${LOCKSTEP_TORCH_LIBRARY_DIR};$ORIGIN/lockstep/libtorch/lib;$ORIGIN/lockstep")
target_link_options(lockstep_shared PRIVATE -Wl,--version-script=${_exported_names} -Wl,-z,defs)
target_include_directories(lockstep_shared INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(lockstep_shared INTERFACE cxx_std_20)

# All C++ objects are linked above. The rooms add the libraries that they need, and the kernels that nvcc compiles.
target_link_libraries(lockstep_shared PRIVATE ${_shared_rooms} PUBLIC ${LOCKSTEP_TORCH_TARGET})
