// Loads a data set as batches of tensors.
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
#include <memory>
#include <type_traits>
#include <utility>

#include <lockstep/data/augment/augment.h>
#include <lockstep/data/datasets/batch_dataset.h>
#include <lockstep/data/datasets/dataset.h>
#include <lockstep/data/loader/batch.h>
#include <lockstep/data/loader/loaded_batch.h>
#include <lockstep/data/loader/loader_base.h>
#include <lockstep/data/loader/loader_options.h>
#include <lockstep/data/samplers/sampler.h>

namespace lockstep {

/// Loads the epochs of one rank in batches of type B. The content of a batch depends on the data
/// set, the sampler, the seed, the epoch and the step, never on threads, so a run can resume at any
/// step of any epoch.
///
/// Batches live in buffers that the loader owns and reuses: the tensors of a batch are valid until
/// the next call of next(), set_epoch() or restore(); clone() a tensor that must live longer. On a
/// GPU, a batch may be used on the stream that is current when next() is called; work on other
/// streams must end before the next call. Not thread-safe.
template <BatchOfTensors B>
class BatchLoader : public detail::LoaderBase {
 public:
  /// Loads batches of images. Throws a ConfigError if an option or the augmentation does not fit
  /// the data set, or the engine cannot execute it.
  BatchLoader(ImageDataset dataset, std::shared_ptr<const Sampler> sampler,
              const Augmentation& augmentation, const LoaderOptions& options)
    requires std::same_as<B, Batch>
      : detail::LoaderBase(std::move(dataset), std::move(sampler), augmentation, options) {}
  template <std::derived_from<Sampler> S>
  BatchLoader(ImageDataset dataset, S sampler, const Augmentation& augmentation,
              const LoaderOptions& options)
    requires std::same_as<B, Batch>
      : detail::LoaderBase(std::move(dataset), std::make_shared<const S>(std::move(sampler)),
                           augmentation, options) {}

  /// Loads batches of a user-defined data set. Throws a ConfigError for an option that applies only
  /// to images.
  BatchLoader(std::shared_ptr<const BatchDataset<B>> dataset,
              std::shared_ptr<const Sampler> sampler, const LoaderOptions& options)
      : detail::LoaderBase(dataset ? dataset->size() : kNoDataset, make_batch_with(dataset),
                           std::move(sampler), options) {}
  template <std::derived_from<Sampler> S>
  BatchLoader(std::shared_ptr<const BatchDataset<B>> dataset, S sampler,
              const LoaderOptions& options)
      : BatchLoader(std::move(dataset), std::make_shared<const S>(std::move(sampler)), options) {}

  /// Stores the next batch in `batch` and returns true, or returns false at the end of the epoch.
  /// Begins epoch 0 if set_epoch() was never called. Rethrows exceptions thrown while the batch was
  /// prepared.
  bool next(B& batch) {
    const LoadedBatch* const loaded = next_loaded();
    if (loaded != nullptr) batch = loaded->batch<B>();
    return loaded != nullptr;
  }

  /// For `for (const B& batch : loader)`: iterates over the rest of the epoch, in a single pass.
  class Iterator {
   public:
    explicit Iterator(BatchLoader* loader) : loader_(loader) { ++*this; }
    Iterator() = default;
    const B& operator*() const { return batch_; }
    Iterator& operator++() {
      if (!loader_->next(batch_)) loader_ = nullptr;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return loader_ != other.loader_; }

   private:
    BatchLoader* loader_ = nullptr;
    B batch_{};
  };
  Iterator begin() { return Iterator(this); }
  Iterator end() { return {}; }

 private:
  static detail::MakeBatch make_batch_with(std::shared_ptr<const BatchDataset<B>> dataset) {
    return [dataset = std::move(dataset)](const BatchRequest& request, LoadedBatch& buffer) {
      B batch = buffer.batch<B>();
      dataset->get(request, batch);
      if constexpr (std::same_as<B, Batch>) check_size(batch, request.size());
      buffer.store(std::move(batch));
    };
  }
};

template <class D, class S>
BatchLoader(std::shared_ptr<D>, S, const LoaderOptions&) -> BatchLoader<typename D::BatchType>;
template <class S>
BatchLoader(ImageDataset, S, const Augmentation&, const LoaderOptions&) -> BatchLoader<Batch>;

/// Batches of images with labels.
using Loader = BatchLoader<Batch>;

}  // namespace lockstep
