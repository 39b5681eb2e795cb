# Defines lockstep::torch, LibTorch as one target. The build uses this file, and so do our users' projects, because it
# is installed beside lockstepConfig.cmake.
#
# Normally find_package(Torch) finds LibTorch. LOCKSTEP_TORCH_ROOT names its folder instead (with include/ and lib/, as
# in a Python's site-packages): TorchConfig.cmake of a CUDA build requires a complete CUDA toolkit with every library,
# although LibTorch's own wheels contain all that compiling and linking need. LOCKSTEP_CUDA adds the CUDA and NCCL
# parts. AUTO becomes ON or OFF here, depending on what is installed. LOCKSTEP_TORCH_VERSION becomes LibTorch's version.
#
# Lockstep can be built with the versions of this range, which README.md lists. tools/bootstrap.sh has the oldest one, too.
set(LOCKSTEP_OLDEST_TORCH 2.11)
set(LOCKSTEP_NEWEST_TORCH 2.14)
set(LOCKSTEP_TORCH_ROOT "${LOCKSTEP_TORCH_ROOT}" CACHE PATH
    "Folder of LibTorch (with include/ and lib/) to use without its TorchConfig.cmake")

if(NOT TARGET lockstep::torch)
  add_library(lockstep::torch INTERFACE IMPORTED)
  if(NOT LOCKSTEP_TORCH_ROOT)
    # find_package(Torch) warns about kineto, a profiler that the wheels leave out. Without this, every user's output would
    # begin with that warning.
    set(_lockstep_log_level ${CMAKE_MESSAGE_LOG_LEVEL})
    set(CMAKE_MESSAGE_LOG_LEVEL ERROR)
    find_package(Torch QUIET)
    set(CMAKE_MESSAGE_LOG_LEVEL ${_lockstep_log_level})
    if(Torch_FOUND)
      set(_lockstep_torch_root ${TORCH_INSTALL_PREFIX})
      target_link_libraries(lockstep::torch INTERFACE ${TORCH_LIBRARIES})
    endif()
  elseif(EXISTS ${LOCKSTEP_TORCH_ROOT}/include/torch/csrc/api/include/torch/torch.h)
    set(Torch_FOUND TRUE)
    set(_lockstep_torch_root ${LOCKSTEP_TORCH_ROOT})
    target_include_directories(lockstep::torch SYSTEM INTERFACE
      ${LOCKSTEP_TORCH_ROOT}/include ${LOCKSTEP_TORCH_ROOT}/include/torch/csrc/api/include)
    target_link_directories(lockstep::torch INTERFACE ${LOCKSTEP_TORCH_ROOT}/lib)
    target_link_libraries(lockstep::torch INTERFACE torch torch_cpu c10)
    # LibTorch's libraries find their own dependencies (CUDA, the driver) when the program starts. In a library, such
    # as the module of the Python package, the linker expects that, but with this option it would refuse Python's symbols.
    target_link_options(lockstep::torch INTERFACE
      $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-Wl,--unresolved-symbols=ignore-in-shared-libs>
      -Wl,--no-as-needed -Wl,-rpath,${LOCKSTEP_TORCH_ROOT}/lib)
  endif()

  set(LOCKSTEP_TORCH_LIBRARY_DIR ${_lockstep_torch_root}/lib)
  unset(LOCKSTEP_TORCH_VERSION)
  foreach(_lockstep_header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
    if(Torch_FOUND AND EXISTS ${_lockstep_torch_root}/include/${_lockstep_header})
      file(STRINGS ${_lockstep_torch_root}/include/${_lockstep_header} _lockstep_numbers
           REGEX "^#define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
      list(TRANSFORM _lockstep_numbers REPLACE "^[^0-9]*([0-9]+).*" "\\1")
      list(JOIN _lockstep_numbers "." LOCKSTEP_TORCH_VERSION)
      break()
    endif()
  endforeach()
  if(EXISTS ${LOCKSTEP_TORCH_LIBRARY_DIR}/libtorch_cuda.so)
    # libtorch.so of the CUDA wheels exports a std::filesystem of its own, whose remove_all() crashes. Programs use the
    # compiler's, which the dynamic linker must therefore find first.
    target_link_options(lockstep::torch BEFORE INTERFACE -Wl,--push-state,--no-as-needed -lstdc++ -Wl,--pop-state)
  endif()
  if(LOCKSTEP_CUDA AND Torch_FOUND)
    get_filename_component(_lockstep_site ${_lockstep_torch_root} DIRECTORY)
    file(GLOB _lockstep_cuda_hints ${_lockstep_site}/nvidia/cu*/include ${_lockstep_site}/nvidia/cuda_runtime/include)
    # CUDA is taken from the wheels that belong to this LibTorch if they contain it, and otherwise from a toolkit. crt/
    # and nv/ are in separate wheels (nvidia-cuda-crt, nvidia-cuda-cccl), on which torch does not depend.
    find_path(LOCKSTEP_CUDA_INCLUDE cuda_runtime_api.h HINTS ${_lockstep_cuda_hints} PATHS /usr/local/cuda/include)
    find_path(LOCKSTEP_CUDA_CRT_INCLUDE crt/host_config.h HINTS ${_lockstep_cuda_hints} PATHS /usr/local/cuda/include)
    find_path(LOCKSTEP_CUDA_CCCL_INCLUDE nv/target HINTS ${_lockstep_cuda_hints}
              PATHS /usr/local/cuda/include /usr/local/cuda/include/cccl)
    find_path(LOCKSTEP_NCCL_INCLUDE nccl.h HINTS ${_lockstep_site}/nvidia/nccl/include)
    find_library(LOCKSTEP_NCCL NAMES libnccl.so.2 nccl HINTS ${_lockstep_site}/nvidia/nccl/lib)
    if(LOCKSTEP_CUDA_INCLUDE AND LOCKSTEP_CUDA_CRT_INCLUDE AND LOCKSTEP_CUDA_CCCL_INCLUDE AND
       LOCKSTEP_NCCL_INCLUDE AND LOCKSTEP_NCCL AND EXISTS ${_lockstep_torch_root}/lib/libtorch_cuda.so)
      target_include_directories(lockstep::torch SYSTEM INTERFACE
        ${LOCKSTEP_CUDA_INCLUDE} ${LOCKSTEP_CUDA_CRT_INCLUDE} ${LOCKSTEP_CUDA_CCCL_INCLUDE}
        ${LOCKSTEP_NCCL_INCLUDE})
      target_link_libraries(lockstep::torch INTERFACE ${LOCKSTEP_NCCL})
      if(LOCKSTEP_TORCH_ROOT)
        target_link_libraries(lockstep::torch INTERFACE torch_cuda c10_cuda)
      endif()
      set(LOCKSTEP_CUDA ON)
    else()
      set(_lockstep_message
          "the NCCL backend needs a CUDA build of LibTorch with the headers of CUDA and NCCL: "
          "got LibTorch in ${_lockstep_torch_root}, cuda_runtime_api.h in ${LOCKSTEP_CUDA_INCLUDE}, "
          "crt/host_config.h in ${LOCKSTEP_CUDA_CRT_INCLUDE}, nv/target in "
          "${LOCKSTEP_CUDA_CCCL_INCLUDE}, nccl.h in ${LOCKSTEP_NCCL_INCLUDE}, libnccl ${LOCKSTEP_NCCL}")
      if(NOT LOCKSTEP_CUDA STREQUAL AUTO)
        message(FATAL_ERROR ${_lockstep_message})
      endif()
      message(STATUS "Without NCCL: " ${_lockstep_message})
      set(LOCKSTEP_CUDA OFF)
    endif()
  endif()
endif()
