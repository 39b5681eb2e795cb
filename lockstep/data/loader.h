// From a data set to batches of tensors.
//
//   Loader loader(dataset, DistributedSampler(dataset.size(), {.rank = 0, .world_size = 2}),
//                 {Pad{4}, RandomCrop{32}, RandomHorizontalFlip{}, Normalize{mean, deviation}},
//                 {.batch_size = 64, .threads = 1});
//   for (std::int64_t epoch = 0; epoch < 10; ++epoch) {
//     loader.set_epoch(epoch);
//     for (const Batch& batch : loader) train(batch.images, batch.labels);
//   }
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <lockstep/data/augment.h>
#include <lockstep/data/batch_dataset.h>
#include <lockstep/data/dataset.h>
#include <lockstep/data/loader_options.h>
#include <lockstep/data/sampler.h>
#include <lockstep/data/sampler_cursor.h>

namespace lockstep {

/// Loads the epochs of one rank. What a batch holds depends on the data set, the sampler, the seed,
/// the epoch and the step, never on threads, so a run can go on at any step of any epoch.
///
/// Batches live in buffers that the loader owns and reuses: a Batch is valid until the next call of
/// next(), set_epoch() or restore(); clone() what must live longer. Of a batch on a GPU that counts for
/// the stream that is current at that call: work on other streams must have ended. Not thread-safe: one thread calls.
class Loader {
 public:
  /// ConfigError when an option or the augmentation does not fit the data set, or the engine cannot
  /// execute it.
  Loader(ImageDataset dataset, std::shared_ptr<const Sampler> sampler, Augmentation augmentation,
         const LoaderOptions& options);
  template <std::derived_from<Sampler> S>
  Loader(ImageDataset dataset, S sampler, Augmentation augmentation, const LoaderOptions& options)
      : Loader(std::move(dataset), std::make_shared<const S>(std::move(sampler)),
               std::move(augmentation), options) {}
  /// Batches of one's own data set. ConfigError for an option that is about images.
  Loader(std::shared_ptr<const BatchDataset> dataset, std::shared_ptr<const Sampler> sampler,
         const LoaderOptions& options);
  template <std::derived_from<Sampler> S>
  Loader(std::shared_ptr<const BatchDataset> dataset, S sampler, const LoaderOptions& options)
      : Loader(std::move(dataset), std::make_shared<const S>(std::move(sampler)), options) {}
  ~Loader();
  Loader(Loader&&) noexcept;
  Loader& operator=(Loader&&) = delete;

  /// Begins `epoch` (from 0) at step `first_step`, and begins to prepare its batches. An epoch
  /// under way is given up. ConfigError when the epoch has no such step or the sampler leaves the
  /// data set.
  void set_epoch(std::int64_t epoch, std::int64_t first_step = 0);

  /// Batches in every epoch.
  std::int64_t steps_per_epoch() const;
  /// Batches that next() will still give in this one.
  std::int64_t steps_left() const;

  /// Gives the next batch; false at the end of the epoch. Without set_epoch() it begins with epoch
  /// 0. Throws what preparing the batch threw.
  bool next(Batch& batch);

  /// Where the epoch stands after the batches that next() gave: for a checkpoint.
  SamplerPosition position() const;
  /// Begins the epoch of `position` exactly there, with whatever batch size and number of ranks this
  /// loader has. Throws what SamplerCursor::restore() throws, and goes on as before then.
  void restore(const SamplerPosition& position);

  /// Seconds that next() and the beginning of epochs took so far: what the trainer waited for its data.
  /// Without threads that is all of the loader's work, on the CPU.
  double waited_seconds() const;
  /// Images left out of the batches given so far, see OnCorruptImage::kSkip.
  std::int64_t skipped_images() const;

  const Sampler& sampler() const;
  const LoaderOptions& options() const;

  /// `for (const Batch& batch : loader)`: what is left of the epoch, once.
  class Iterator {
   public:
    explicit Iterator(Loader* loader) : loader_(loader) { ++*this; }
    Iterator() = default;
    const Batch& operator*() const { return batch_; }
    Iterator& operator++() {
      if (!loader_->next(batch_)) loader_ = nullptr;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return loader_ != other.loader_; }

   private:
    Loader* loader_ = nullptr;
    Batch batch_;
  };
  Iterator begin() { return Iterator(this); }
  Iterator end() { return {}; }

 private:
  struct State;
  std::unique_ptr<State> state_;  // fixed in memory: threads refer to it
};

}  // namespace lockstep
