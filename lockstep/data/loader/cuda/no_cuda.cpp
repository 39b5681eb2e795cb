// Replaces engine_cuda.cpp if LibTorch is a CPU build.
#include <lockstep/core/error.h>
#include <lockstep/data/loader/loader_engine.h>

namespace lockstep::detail {

std::unique_ptr<LoaderEngine> make_cuda_engine(const ImageDataset&, const Augmentation&,
                                               const LoaderOptions&) {
  throw ConfigError(
      "Loader: the cuda engine needs the CUDA build of LibTorch, and this one is for CPUs; set "
      "LoaderOptions::engine to native");
}

}  // namespace lockstep::detail
