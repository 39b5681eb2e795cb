#include <lockstep/core/error.h>
#include <lockstep/data/loader_engine.h>

namespace lockstep {

std::unique_ptr<LoaderEngine> make_dali_engine(const ImageDataset&, const Augmentation&,
                                               const LoaderOptions&) {
  throw ConfigError("Loader: --loader dali needs NVIDIA DALI, which this build does not have; run `make dali`");
}

}  // namespace lockstep
