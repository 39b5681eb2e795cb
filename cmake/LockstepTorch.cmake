# LibTorch, as the target LOCKSTEP_TORCH_TARGET, and the precompiled header of it.
#
# Normally from find_package(Torch). The `cuda` preset names the folder of a CUDA build of LibTorch in
# LOCKSTEP_TORCH_ROOT instead: its TorchConfig.cmake demands a complete CUDA toolkit with every
# library, which a machine that only compiles does not have.
set(LOCKSTEP_TORCH_ROOT "" CACHE PATH "Folder of LibTorch (with include/ and lib/) to use without its TorchConfig.cmake")

add_library(lockstep_torch INTERFACE)
set(LOCKSTEP_TORCH_TARGET lockstep_torch)
if(LOCKSTEP_TORCH_ROOT)
  get_filename_component(_site ${LOCKSTEP_TORCH_ROOT} DIRECTORY)
  target_include_directories(lockstep_torch SYSTEM INTERFACE
    $<BUILD_INTERFACE:${LOCKSTEP_TORCH_ROOT}/include>
    $<BUILD_INTERFACE:${LOCKSTEP_TORCH_ROOT}/include/torch/csrc/api/include>)
  target_link_directories(lockstep_torch INTERFACE $<BUILD_INTERFACE:${LOCKSTEP_TORCH_ROOT}/lib>)
  target_link_libraries(lockstep_torch INTERFACE torch torch_cpu c10)
  target_link_options(lockstep_torch INTERFACE -Wl,--unresolved-symbols=ignore-in-shared-libs
                      -Wl,-rpath,${LOCKSTEP_TORCH_ROOT}/lib)
  if(LOCKSTEP_CUDA)
    file(GLOB _nvidia_includes ${_site}/nvidia/cu*/include ${_site}/nvidia/nccl/include)
    target_include_directories(lockstep_torch SYSTEM INTERFACE $<BUILD_INTERFACE:/usr/local/cuda/include>
                               "$<BUILD_INTERFACE:${_nvidia_includes}>")
    target_link_directories(lockstep_torch INTERFACE ${_site}/nvidia/nccl/lib ${_site}/nvidia/cu13/lib)
    target_link_libraries(lockstep_torch INTERFACE torch_cuda c10_cuda -l:libnccl.so.2)
    target_link_options(lockstep_torch INTERFACE -Wl,--no-as-needed
                        -Wl,-rpath,${_site}/nvidia/nccl/lib:${_site}/nvidia/cu13/lib)
  endif()
else()
  find_package(Torch REQUIRED)
  if(LOCKSTEP_CUDA AND NOT TORCH_CUDA_LIBRARIES)
    message(FATAL_ERROR "LOCKSTEP_CUDA needs a CUDA build of LibTorch; ${TORCH_INSTALL_PREFIX} is a CPU build")
  endif()
  target_link_libraries(lockstep_torch INTERFACE ${TORCH_LIBRARIES})
endif()
install(TARGETS lockstep_torch EXPORT lockstep)

# One precompiled <torch/torch.h> serves every target: it takes as long as a translation unit.
file(WRITE ${CMAKE_BINARY_DIR}/torch_pch.cpp "// Exists to build the precompiled header once.\n")
add_library(lockstep_torch_pch OBJECT ${CMAKE_BINARY_DIR}/torch_pch.cpp)
target_link_libraries(lockstep_torch_pch PRIVATE lockstep_torch lockstep_flags)
target_precompile_headers(lockstep_torch_pch PRIVATE <torch/torch.h>)
function(lockstep_use_torch_pch target)
  target_precompile_headers(${target} REUSE_FROM lockstep_torch_pch)
endfunction()
