// What makes the batches of a Loader: one interface; native, CUDA and DALI are behind it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <lockstep/data/augment.h>
#include <lockstep/data/corrupt_image.h>
#include <lockstep/data/dataset.h>
#include <lockstep/data/loader_options.h>

namespace lockstep {

/// The part of an epoch that is still to be loaded. Places count this rank's indices from 0.
struct LoaderEpoch {
  std::int64_t epoch = 0;
  std::span<const std::int64_t> indices;  ///< all of the epoch's; valid until the next start()
  std::int64_t first = 0;                 ///< place at which the first batch begins
  std::int64_t batches = 0;               ///< all of batch_size but the last, which ends at the end
};

/// The images of one batch, and what their random choices depend on.
struct BatchRequest {
  std::int64_t epoch = 0;
  std::int64_t place = 0;  ///< of the first one in the epoch
  std::span<const std::int64_t> indices;
};

/// A batch as the engine hands it out. The tensors are the engine's, and valid until the next call.
struct LoadedBatch {
  Batch batch;
  std::vector<CorruptImage> skipped;
};

/// One thread calls. What a batch holds depends on its request alone.
class LoaderEngine {
 public:
  virtual ~LoaderEngine() = default;
  /// Begins to make batches; what is under way of an earlier epoch is given up, and no longer reads
  /// that epoch's indices when this returns.
  virtual void start(const LoaderEpoch& epoch) = 0;
  /// As start() with nothing to make.
  virtual void stop() = 0;
  /// False after the last batch. Throws what making the batch threw; the epoch then is over.
  virtual bool next(LoadedBatch& loaded) = 0;
};

/// `options` are checked by the Loader. Each throws a ConfigError that names the operator or option
/// that this engine cannot execute, or what is missing on this machine.
std::unique_ptr<LoaderEngine> make_native_engine(const ImageDataset& dataset,
                                                 const Augmentation& augmentation,
                                                 const LoaderOptions& options);
std::unique_ptr<LoaderEngine> make_dali_engine(const ImageDataset& dataset,
                                               const Augmentation& augmentation,
                                               const LoaderOptions& options);
std::unique_ptr<LoaderEngine> make_cuda_engine(const ImageDataset& dataset,
                                               const Augmentation& augmentation,
                                               const LoaderOptions& options);

}  // namespace lockstep
