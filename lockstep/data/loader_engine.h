// What makes the batches of a Loader: one interface; native, CUDA and DALI are behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <lockstep/data/augment.h>
#include <lockstep/data/augment/sample_key.h>
#include <lockstep/data/corrupt_image.h>
#include <lockstep/data/dataset.h>
#include <lockstep/data/loader_options.h>

namespace lockstep {

/// The part of an epoch that is still to be loaded.
struct LoaderEpoch {
  std::int64_t epoch = 0;
  std::span<const std::int64_t> indices;  ///< of this rank; valid until the next start() or stop()
  std::span<const std::uint32_t> occurrences;  ///< as in EpochShare; valid as long
  std::int64_t batches = 0;               ///< all of batch_size but the last, which ends at the end
};

/// The images of one batch, and what their random choices depend on.
struct BatchRequest {
  std::int64_t epoch = 0;
  std::span<const std::int64_t> indices;
  std::span<const std::uint32_t> occurrences;

  /// What those of image number `i` of the batch depend on.
  SampleKey key(std::size_t i, std::uint64_t seed) const {
    return {.seed = seed,
            .epoch = static_cast<std::uint32_t>(epoch),
            .sample = static_cast<std::uint64_t>(indices[i]),
            .occurrence = occurrences.empty() ? 0 : occurrences[i]};
  }
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
