// A loader's iteration over its epochs, independent of the type of its batches.
#pragma once

#include <cstdint>
#include <memory>

#include <lockstep/core/export.h>
#include <lockstep/data/augment/augment.h>
#include <lockstep/data/datasets/dataset.h>
#include <lockstep/data/loader/batch.h>
#include <lockstep/data/loader/batch_kernel.h>
#include <lockstep/data/loader/loaded_batch.h>
#include <lockstep/data/loader/loader_engine.h>
#include <lockstep/data/loader/loader_options.h>
#include <lockstep/data/samplers/sampler.h>
#include <lockstep/data/samplers/sampler_cursor.h>

namespace lockstep::detail {

/// The interface of a BatchLoader that does not depend on the type of its batches.
class LOCKSTEP_API LoaderBase {
 public:
  /// Begins `epoch` (from 0) at step `first_step`, and starts to prepare its batches. An epoch in
  /// progress is abandoned. Throws a ConfigError if the epoch has no such step or the sampler
  /// returns an index outside of the data set.
  void set_epoch(std::int64_t epoch, std::int64_t first_step = 0);

  /// The number of batches in each epoch.
  std::int64_t steps_per_epoch() const;
  /// The number of batches that next() will still return in this epoch.
  std::int64_t steps_left() const;

  /// The position in the epoch after the batches that next() returned, for a checkpoint.
  SamplerPosition position() const;
  /// Resumes exactly at `position`, for any batch size and number of ranks of this loader. Throws
  /// what SamplerCursor::restore() throws; the loader then continues as if it had not been called.
  void restore(const SamplerPosition& position);

  /// Seconds spent so far in next() and in beginning epochs: the trainer's wait for its data.
  /// Without threads that is all of the loader's work on the CPU.
  double waited_seconds() const;
  /// The number of images left out of the returned batches so far, see OnCorruptImage::kSkip.
  std::int64_t skipped_images() const;

  /// With `on`, next() returns plans, which are the input of the returned kernel, instead of
  /// batches; with `on` false, it returns batches again. The epoch continues at its position.
  /// Returns null and changes nothing if the engine has no kernel, or batches are mixed
  /// (LoaderOptions::mix). Only the cuda engine has a kernel.
  std::shared_ptr<const BatchKernel> defer_kernel(bool on);

  /// The next batch, valid until the next call; nullptr at the end of the epoch. For code that does
  /// not know the type of the batches; otherwise call BatchLoader::next().
  const LoadedBatch* next_loaded();

  const Sampler& sampler() const;
  const LoaderOptions& options() const;

 protected:
  static constexpr std::int64_t kNoDataset = -1;

  LoaderBase(ImageDataset dataset, std::shared_ptr<const Sampler> sampler,
             const Augmentation& augmentation, const LoaderOptions& options);
  LoaderBase(std::int64_t dataset_size, MakeBatch make_batch,
             std::shared_ptr<const Sampler> sampler, const LoaderOptions& options);
  ~LoaderBase();
  LoaderBase(LoaderBase&&) noexcept;
  LoaderBase& operator=(LoaderBase&&) = delete;

  /// Sets batch.size. Throws a ConfigError unless both tensors of `batch` hold `size` samples.
  static void check_size(Batch& batch, std::int64_t size);

 private:
  struct State;
  std::unique_ptr<State> state_;  // never moves: threads refer to it
};

}  // namespace lockstep::detail
