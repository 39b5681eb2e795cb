// What makes the batches of a Loader: one interface; native, CUDA and DALI are behind it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include <lockstep/data/augment/augment.h>
#include <lockstep/data/datasets/batch_request.h>
#include <lockstep/data/datasets/dataset.h>
#include <lockstep/data/loader/batch_kernel.h>
#include <lockstep/data/loader/loaded_batch.h>
#include <lockstep/data/loader/loader_options.h>

namespace lockstep {

/// The part of an epoch that is still to be loaded.
struct LoaderEpoch {
  std::int64_t epoch = 0;
  std::span<const std::int64_t>
      indices{};  ///< of this rank; valid until the next start() or stop()
  std::span<const std::uint32_t> occurrences{};  ///< as in EpochShare; valid as long
  std::int64_t batches = 0;  ///< all of batch_size but the last, which ends at the end
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
  /// False after the last batch. The tensors of `loaded` are the engine's, and valid until the next
  /// call. Throws what making the batch threw; the epoch then is over.
  virtual bool next(LoadedBatch& loaded) = 0;

  /// With `on`, next() gives the plans of batches from the next start() on, on options.device, and
  /// the kernel that makes batches of them is returned; without, the batches again. Null, and
  /// nothing changed, where an engine has no such kernel. Call it while nothing is under way.
  virtual std::shared_ptr<const BatchKernel> defer_kernel(bool /*on*/) { return nullptr; }
};

/// Makes the batch of `request` in `buffer`, which holds what an earlier call left there. It runs
/// on several threads at once, for different buffers.
using MakeBatch = std::function<void(const BatchRequest& request, LoadedBatch& buffer)>;

/// `options` are checked by the Loader. Each throws a ConfigError that names the operator or option
/// that this engine cannot execute, or what is missing on this machine.
std::unique_ptr<LoaderEngine> make_native_engine(const ImageDataset& dataset,
                                                 const Augmentation& augmentation,
                                                 const LoaderOptions& options);
std::unique_ptr<LoaderEngine> make_batch_dataset_engine(MakeBatch make_batch,
                                                        const LoaderOptions& options);
std::unique_ptr<LoaderEngine> make_dali_engine(const ImageDataset& dataset,
                                               const Augmentation& augmentation,
                                               const LoaderOptions& options);
std::unique_ptr<LoaderEngine> make_cuda_engine(const ImageDataset& dataset,
                                               const Augmentation& augmentation,
                                               const LoaderOptions& options);

}  // namespace lockstep
