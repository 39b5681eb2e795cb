// The walk of a loader through its epochs, whatever its batches are made of.
#pragma once

#include <cstdint>
#include <memory>

#include <lockstep/data/augment/augment.h>
#include <lockstep/data/datasets/dataset.h>
#include <lockstep/data/loader/batch.h>
#include <lockstep/data/loader/batch_kernel.h>
#include <lockstep/data/loader/loaded_batch.h>
#include <lockstep/data/loader/loader_engine.h>
#include <lockstep/data/loader/loader_options.h>
#include <lockstep/data/samplers/sampler.h>
#include <lockstep/data/samplers/sampler_cursor.h>

namespace lockstep {

/// What BatchLoader has for every type of batch.
class LoaderBase {
 public:
  /// Begins `epoch` (from 0) at step `first_step`, and begins to prepare its batches. An epoch
  /// under way is given up. ConfigError when the epoch has no such step or the sampler leaves the
  /// data set.
  void set_epoch(std::int64_t epoch, std::int64_t first_step = 0);

  /// Batches in every epoch.
  std::int64_t steps_per_epoch() const;
  /// Batches that next() will still give in this one.
  std::int64_t steps_left() const;

  /// Where the epoch stands after the batches that next() gave: for a checkpoint.
  SamplerPosition position() const;
  /// Begins the epoch of `position` exactly there, with whatever batch size and number of ranks
  /// this loader has. Throws what SamplerCursor::restore() throws, and goes on as before then.
  void restore(const SamplerPosition& position);

  /// Seconds that next() and the beginning of epochs took so far: what the trainer waited for its
  /// data. Without threads that is all of the loader's work, on the CPU.
  double waited_seconds() const;
  /// Images left out of the batches given so far, see OnCorruptImage::kSkip.
  std::int64_t skipped_images() const;

  /// With `on`, next() gives in place of each batch what the returned kernel makes it of; without,
  /// batches again. The epoch goes on where it stands. Null, and next() as before, where batches
  /// are not made by a kernel, or are mixed (LoaderOptions::mix): only the cuda engine has one.
  std::shared_ptr<const BatchKernel> defer_kernel(bool on);

  const Sampler& sampler() const;
  const LoaderOptions& options() const;

 protected:
  static constexpr std::int64_t kNoDataset = -1;

  LoaderBase(ImageDataset dataset, std::shared_ptr<const Sampler> sampler,
             Augmentation augmentation, const LoaderOptions& options);
  LoaderBase(std::int64_t dataset_size, MakeBatch make_batch,
             std::shared_ptr<const Sampler> sampler, const LoaderOptions& options);
  ~LoaderBase();
  LoaderBase(LoaderBase&&) noexcept;
  LoaderBase& operator=(LoaderBase&&) = delete;

  /// The next batch, valid until the next call; nullptr at the end of the epoch.
  const LoadedBatch* next_loaded();
  /// ConfigError unless both tensors of `batch`, which it completes, hold `size` samples.
  static void check_size(Batch& batch, std::int64_t size);

 private:
  struct State;
  std::unique_ptr<State> state_;  // fixed in memory: threads refer to it
};

}  // namespace lockstep
