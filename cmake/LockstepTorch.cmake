# LibTorch, as the target LOCKSTEP_TORCH_TARGET, and precompiled headers of it.
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

# lockstep_use_torch_pch(TARGET HEADER): the target shares one precompiled HEADER of LibTorch with all others
# that name it. The smallest one that serves is the fastest: each translation unit instantiates anew the
# templates that the header left pending, 1.3 s for <torch/types.h>, 4 s for <torch/torch.h>.
function(lockstep_use_torch_pch target header)
  string(MAKE_C_IDENTIFIER lockstep_pch_${header} pch)
  if(NOT TARGET ${pch})
    # file(CONFIGURE) leaves an unchanged file alone, so that configuring again does not build it again.
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/${pch}.cpp CONTENT "// Exists to build the precompiled header once.\n")
    add_library(${pch} OBJECT ${CMAKE_BINARY_DIR}/${pch}.cpp)
    target_link_libraries(${pch} PRIVATE lockstep::torch lockstep_flags)
    target_precompile_headers(${pch} PRIVATE <${header}>)
  endif()
  target_precompile_headers(${target} REUSE_FROM ${pch})
  # Programs would be compiled with -fPIE, and g++ ignores a header that was made with -fPIC.
  target_compile_options(${target} PRIVATE -fPIC)
endfunction()
