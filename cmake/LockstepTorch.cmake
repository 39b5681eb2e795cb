# LibTorch, as the target LOCKSTEP_TORCH_TARGET, and the precompiled header of it.
include(${CMAKE_CURRENT_LIST_DIR}/LockstepLibTorch.cmake)
if(NOT Torch_FOUND)
  message(FATAL_ERROR "LibTorch was not found in CMAKE_PREFIX_PATH=${CMAKE_PREFIX_PATH} or "
          "LOCKSTEP_TORCH_ROOT=${LOCKSTEP_TORCH_ROOT}; `make build` finds or installs it")
endif()
set(LOCKSTEP_TORCH_TARGET lockstep::torch)

# One precompiled <torch/torch.h> serves every target: it takes as long as a translation unit.
# file(CONFIGURE) leaves an unchanged file alone, so that configuring again does not build it again.
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/torch_pch.cpp CONTENT "// Exists to build the precompiled header once.\n")
add_library(lockstep_torch_pch OBJECT ${CMAKE_BINARY_DIR}/torch_pch.cpp)
target_link_libraries(lockstep_torch_pch PRIVATE lockstep::torch lockstep_flags)
target_precompile_headers(lockstep_torch_pch PRIVATE <torch/torch.h>)
function(lockstep_use_torch_pch target)
  target_precompile_headers(${target} REUSE_FROM lockstep_torch_pch)
  # Programs would be compiled with -fPIE, and g++ ignores a header that was made with -fPIC.
  target_compile_options(${target} PRIVATE -fPIC)
endfunction()
