# LibTorch, as the target LOCKSTEP_TORCH_TARGET, and its precompiled header.
include(${CMAKE_CURRENT_LIST_DIR}/LockstepCudaKernels.cmake)
if(LOCKSTEP_CUDA STREQUAL AUTO AND NOT (LOCKSTEP_NVCC AND LOCKSTEP_CUDART))
  message(STATUS "Without NCCL and the cuda engine: no nvcc (${LOCKSTEP_NVCC}) or no libcudart (${LOCKSTEP_CUDART})")
  set(LOCKSTEP_CUDA OFF)
endif()
include(${CMAKE_CURRENT_LIST_DIR}/LockstepLibTorch.cmake)
if(NOT Torch_FOUND)
  message(FATAL_ERROR "LibTorch was not found in CMAKE_PREFIX_PATH=${CMAKE_PREFIX_PATH} or "
          "LOCKSTEP_TORCH_ROOT=${LOCKSTEP_TORCH_ROOT}; `make build` finds or installs it")
endif()
set(LOCKSTEP_TORCH_TARGET lockstep::torch)

# lockstep_use_torch_pch(TARGET): the target shares the precompiled header of LibTorch with all others.
#
# One header serves them all. A smaller one (<torch/types.h>) for those that need no modules would save 0.5 to 1.5 s for each
# translation unit, whose compilation instantiates the templates that the header left pending, and a larger one
# (<torch/nn.h>) costs as much as it saves; but the compilation of each takes 20 s.
function(lockstep_use_torch_pch target)
  if(NOT TARGET lockstep_torch_pch)
    # file(CONFIGURE) leaves an unchanged file alone, so that configuring again does not build it again.
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/lockstep_torch_pch.cpp CONTENT "// Exists to build the precompiled header once.\n")
    add_library(lockstep_torch_pch OBJECT ${CMAKE_BINARY_DIR}/lockstep_torch_pch.cpp)
    target_link_libraries(lockstep_torch_pch PRIVATE lockstep::torch lockstep_flags)
    target_precompile_headers(lockstep_torch_pch PRIVATE <torch/nn/module.h>)
  endif()
  target_precompile_headers(${target} REUSE_FROM lockstep_torch_pch)
  # Programs would be compiled with -fPIE, and g++ ignores a header that was made with -fPIC.
  target_compile_options(${target} PRIVATE -fPIC)
endfunction()
