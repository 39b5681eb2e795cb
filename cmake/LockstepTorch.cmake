# LibTorch, as the target LOCKSTEP_TORCH_TARGET, and its precompiled header.
include(${CMAKE_CURRENT_LIST_DIR}/LockstepCudaKernels.cmake)
if(LOCKSTEP_CUDA STREQUAL AUTO AND NOT (LOCKSTEP_NVCC AND LOCKSTEP_CUDART))
  message(STATUS "NCCL and the cuda engine are left out: nvcc (${LOCKSTEP_NVCC}) or libcudart (${LOCKSTEP_CUDART}) is missing")
  set(LOCKSTEP_CUDA OFF)
endif()
include(${CMAKE_CURRENT_LIST_DIR}/LockstepLibTorch.cmake)
if(NOT Torch_FOUND)
  message(FATAL_ERROR "LibTorch was not found in CMAKE_PREFIX_PATH=${CMAKE_PREFIX_PATH} or "
          "LOCKSTEP_TORCH_ROOT=${LOCKSTEP_TORCH_ROOT}; `make build` finds or installs it")
endif()
string(REGEX MATCH "^[0-9]+\\.[0-9]+" _torch_minor "${LOCKSTEP_TORCH_VERSION}")
set(_torch_range "Lockstep can be built with LibTorch ${LOCKSTEP_OLDEST_TORCH} to ${LOCKSTEP_NEWEST_TORCH}")
if(_torch_minor AND _torch_minor VERSION_LESS LOCKSTEP_OLDEST_TORCH)
  message(FATAL_ERROR "LibTorch ${LOCKSTEP_TORCH_VERSION} in ${LOCKSTEP_TORCH_LIBRARY_DIR} is too old: ${_torch_range}")
elseif(_torch_minor VERSION_GREATER LOCKSTEP_NEWEST_TORCH)
  message(WARNING "LibTorch ${LOCKSTEP_TORCH_VERSION} in ${LOCKSTEP_TORCH_LIBRARY_DIR} is newer than what Lockstep knows: ${_torch_range}")
endif()
set(LOCKSTEP_TORCH_TARGET lockstep::torch)

# lockstep_use_torch_pch(TARGET): the target shares the precompiled header of LibTorch with all others. The first target,
# the room comm, compiles it.
#
# One header serves all targets, because compiling each further header takes 20 s. Every translation unit instantiates the
# templates that the header left pending, so a smaller header (<torch/types.h>) for targets without modules would save 0.5
# to 1.5 s per translation unit. A larger one (<torch/nn.h>) costs as much as it saves.
function(lockstep_use_torch_pch target)
  get_property(owner GLOBAL PROPERTY LOCKSTEP_PCH_OWNER)
  if(owner)
    target_precompile_headers(${target} REUSE_FROM ${owner})
  else()
    target_precompile_headers(${target} PRIVATE <torch/nn/module.h>)
    set_property(GLOBAL PROPERTY LOCKSTEP_PCH_OWNER ${target})
  endif()
  # Programs would be compiled with -fPIE, and g++ ignores a header that was made with -fPIC.
  target_compile_options(${target} PRIVATE -fPIC)
endfunction()
