#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include <lockstep/core/error.h>
#include <lockstep/data/augment/cuda/gather_kernel.h>
#include <lockstep/data/loader/cuda/gather_engine.h>

namespace lockstep::detail {

std::unique_ptr<LoaderEngine> make_cuda_engine(const ImageDataset& dataset,
                                               const Augmentation& augmentation,
                                               const LoaderOptions& options) {
  if (!options.device.is_cuda()) {
    throw ConfigError(
        "Loader: the cuda engine makes batches on a GPU, and this run is on the CPU; "
        "set LoaderOptions::engine to native, or LoaderOptions::device to cuda");
  }
  return data::make_gather_engine(
      dataset, augmentation, options, [](const data::GatherLaunch& launch) {
        C10_CUDA_CHECK(static_cast<cudaError_t>(
            data::launch_gather(launch, c10::cuda::getCurrentCUDAStream().stream())));
      });
}

}  // namespace lockstep::detail
