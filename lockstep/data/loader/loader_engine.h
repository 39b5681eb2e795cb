// The engine that makes the batches of a Loader: one interface for native, CUDA and DALI engines.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include <lockstep/core/export.h>
#include <lockstep/data/augment/augment.h>
#include <lockstep/data/datasets/batch_request.h>
#include <lockstep/data/datasets/dataset.h>
#include <lockstep/data/loader/batch_kernel.h>
#include <lockstep/data/loader/loaded_batch.h>
#include <lockstep/data/loader/loader_options.h>

namespace lockstep::detail {

/// The part of an epoch that is still to be loaded.
struct LOCKSTEP_API LoaderEpoch {
  std::int64_t epoch = 0;
  std::span<const std::int64_t>
      indices{};  ///< this rank's indices; valid until the next start() or stop()
  std::span<const std::uint32_t> occurrences{};  ///< as in EpochShare; valid as long as `indices`
  std::int64_t batches = 0;  ///< all have batch_size samples, but the last may have fewer
};

/// Makes the batches of an epoch, in order. Not thread-safe. The content of a batch depends only on
/// its request.
class LOCKSTEP_API LoaderEngine {
 public:
  virtual ~LoaderEngine() = default;
  /// Starts to make batches. Work on an earlier epoch is abandoned, and no longer reads that
  /// epoch's indices when this function returns.
  virtual void start(const LoaderEpoch& epoch) = 0;
  /// Stops, like start() with nothing to make.
  virtual void stop() = 0;
  /// Returns false after the last batch. The engine owns the tensors of `loaded`, which are valid
  /// until the next call. Rethrows an exception that was thrown while the batch was made; the epoch
  /// is then over.
  virtual bool next(LoadedBatch& loaded) = 0;

  /// With `on`, next() returns plans on options.device instead of batches, beginning with the next
  /// start(), and this function returns the kernel that makes batches of them. With `on` false,
  /// next() returns batches again. Returns null and changes nothing if the engine has no such
  /// kernel. Call it only while no batch is being made.
  virtual std::shared_ptr<const BatchKernel> defer_kernel(bool /*on*/) { return nullptr; }
};

/// Makes the batch for `request` in `buffer`, which holds the result of an earlier call. Called
/// from several threads at once, for different buffers.
using MakeBatch = std::function<void(const BatchRequest& request, LoadedBatch& buffer)>;

/// Make the engines. The Loader has already checked `options`. Each function throws a ConfigError
/// that names the operator or option that the engine cannot execute, or the component that is
/// missing on this machine.
LOCKSTEP_API std::unique_ptr<LoaderEngine> make_native_engine(const ImageDataset& dataset,
                                                              const Augmentation& augmentation,
                                                              const LoaderOptions& options);
LOCKSTEP_API std::unique_ptr<LoaderEngine> make_batch_dataset_engine(MakeBatch make_batch,
                                                                     const LoaderOptions& options);
LOCKSTEP_API std::unique_ptr<LoaderEngine> make_dali_engine(const ImageDataset& dataset,
                                                            const Augmentation& augmentation,
                                                            const LoaderOptions& options);
LOCKSTEP_API std::unique_ptr<LoaderEngine> make_cuda_engine(const ImageDataset& dataset,
                                                            const Augmentation& augmentation,
                                                            const LoaderOptions& options);

}  // namespace lockstep::detail
