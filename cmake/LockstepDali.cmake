# The module lockstep_dali, through which the loader's dali engine uses NVIDIA DALI. It is loaded when a
# program requests that engine; in a build without DALI the request fails. Included where the data room is defined.
set(LOCKSTEP_DALI_ROOT "" CACHE PATH "Folder of DALI's Python package (with libdali.so and include/), which `make dali` installs")

if(NOT LOCKSTEP_DALI_ROOT)
  message(STATUS "No LOCKSTEP_DALI_ROOT: the loader has no dali engine")
elseif(NOT EXISTS ${LOCKSTEP_DALI_ROOT}/include/dali/dali.h)
  message(WARNING "LOCKSTEP_DALI_ROOT=${LOCKSTEP_DALI_ROOT} holds no include/dali/dali.h: the loader has no dali engine")
else()
  add_library(lockstep_dali MODULE augment/dali/module.cpp)
  lockstep_module(lockstep_dali)
  set_target_properties(lockstep_dali PROPERTIES
    BUILD_RPATH "${LOCKSTEP_DALI_ROOT};${CMAKE_BUILD_RPATH}"  # the latter are the folders of a kit
    INSTALL_RPATH ${LOCKSTEP_DALI_ROOT})
  target_compile_features(lockstep_dali PRIVATE cxx_std_20)
  target_include_directories(lockstep_dali PRIVATE ${PROJECT_SOURCE_DIR})
  target_include_directories(lockstep_dali SYSTEM PRIVATE
    ${CMAKE_CURRENT_SOURCE_DIR}/augment/dali/cuda_handles ${LOCKSTEP_DALI_ROOT}/include)
  target_link_directories(lockstep_dali PRIVATE ${LOCKSTEP_DALI_ROOT})
  # Nothing here calls libdali_operators, which registers its operators when it is loaded.
  target_link_libraries(lockstep_dali PRIVATE lockstep_flags -Wl,--no-as-needed
    dali dali_operators dali_kernels dali_core)
  # Programs of this build that use the data room find the module beside them.
  add_dependencies(lockstep_data_plain lockstep_dali)
endif()
