# lockstep_cuda_kernels(TARGET file.cu...): compiles kernels into objects of TARGET.
#
# nvcc is called directly, because enable_language(CUDA) requires a toolkit with every library. The wheels of
# LibTorch's CUDA build contain all that the kernels link with.
find_program(LOCKSTEP_NVCC nvcc HINTS ${LOCKSTEP_TORCH_ROOT}/../nvidia/cu13/bin PATHS /usr/local/cuda/bin
             DOC "Compiler of CUDA kernels")
find_library(LOCKSTEP_CUDART NAMES libcudart.so.13 cudart HINTS ${LOCKSTEP_TORCH_ROOT}/../nvidia/cu13/lib
             PATHS /usr/local/cuda/lib64)
# Ampere, Hopper, and PTX for later GPUs.
set(LOCKSTEP_CUDA_ARCHITECTURES -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_90,code=[sm_90,compute_90]
    CACHE STRING "nvcc's options for the GPUs to compile for")

function(lockstep_cuda_kernels target)
  if(NOT LOCKSTEP_NVCC OR NOT LOCKSTEP_CUDART)
    message(FATAL_ERROR "the CUDA kernels need nvcc (got ${LOCKSTEP_NVCC}) and libcudart (got ${LOCKSTEP_CUDART}): "
            "install the CUDA toolkit, or nvidia-cuda-nvcc with pip, or set LOCKSTEP_CUDA=OFF")
  endif()
  foreach(source ${ARGN})
    get_filename_component(name ${source} NAME_WE)
    set(object ${CMAKE_CURRENT_BINARY_DIR}/${name}.o)
    add_custom_command(
      OUTPUT ${object} DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${source} DEPFILE ${object}.d
      COMMAND ${LOCKSTEP_NVCC} -std=c++20 -O3 ${LOCKSTEP_CUDA_ARCHITECTURES} -ccbin ${CMAKE_CXX_COMPILER}
              -Xcompiler=-fPIC,-fvisibility=hidden -I${PROJECT_SOURCE_DIR} -MD -MF ${object}.d -c
              ${CMAKE_CURRENT_SOURCE_DIR}/${source} -o ${object}
      COMMENT "Compiling CUDA kernel ${source}" VERBATIM)
    target_sources(${target} PRIVATE ${object})
    set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  endforeach()
  target_link_libraries(${target} PRIVATE ${LOCKSTEP_CUDART})
endfunction()
