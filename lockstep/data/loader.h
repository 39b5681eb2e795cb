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

#include <torch/types.h>

#include <concepts>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <lockstep/data/augment.h>
#include <lockstep/data/dataset.h>
#include <lockstep/data/sampler.h>

namespace lockstep {

struct LoaderOptions {
  std::int64_t batch_size = 1;  ///< Images per batch of this rank.
  int threads = 0;              ///< Threads that prepare batches; 0: next() does it itself.
  int prefetch = 3;             ///< Batches prepared ahead; without threads, none are.
  bool drop_last = false;       ///< Drop a last batch that is smaller than batch_size.
  bool channels_last = false;   ///< Images lie in memory as NHWC (the shape stays NCHW).
  torch::ScalarType dtype = torch::kFloat32;  ///< Of the images: kFloat32, kBFloat16 or kFloat16.
  std::uint64_t seed = 0;       ///< Of the augmentation's random choices.
};

struct Batch {
  torch::Tensor images;  ///< LoaderOptions::dtype [size, channels, height, width], normalised
  torch::Tensor labels;  ///< int64 [size]
  std::int64_t size = 0;
};

/// Loads the epochs of one rank. What a batch holds depends on the data set, the sampler, the seed,
/// the epoch and the step, never on threads, so a run can go on at any step of any epoch.
///
/// Batches live in buffers that the loader owns and reuses: a Batch is valid until the next call of
/// next() or set_epoch(); clone() what must live longer. Not thread-safe: one thread calls.
class Loader {
 public:
  /// ConfigError when an option or the augmentation does not fit the data set.
  Loader(ImageDataset dataset, std::shared_ptr<const Sampler> sampler, Augmentation augmentation,
         const LoaderOptions& options);
  template <std::derived_from<Sampler> S>
  Loader(ImageDataset dataset, S sampler, Augmentation augmentation, const LoaderOptions& options)
      : Loader(std::move(dataset), std::make_shared<const S>(std::move(sampler)),
               std::move(augmentation), options) {}
  ~Loader();
  Loader(Loader&&) noexcept;
  Loader& operator=(Loader&&) = delete;

  /// Begins `epoch` (from 0) at step `first_step`, and begins to prepare its batches. An epoch
  /// under way is given up. ConfigError when the epoch has no such step or the sampler leaves the
  /// data set.
  void set_epoch(std::int64_t epoch, std::int64_t first_step = 0);

  /// Seconds that next() took so far, over all epochs: what the trainer waited for its data. Without
  /// threads that is all of the loader's work.
  double waited_seconds() const;

  /// Batches in every epoch.
  std::int64_t steps_per_epoch() const;

  /// Gives the next batch; false at the end of the epoch. Without set_epoch() it begins with epoch
  /// 0. Throws what preparing the batch threw.
  bool next(Batch& batch);

  const ImageDataset& dataset() const;
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
