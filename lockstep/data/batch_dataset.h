// A data set of one's own that makes whole batches: sensor readings, text, states of a simulation.
//
//   class Prices final : public BatchDataset {
//    public:
//     std::int64_t size() const override { return days_; }
//     void get(std::span<const std::int64_t> indices, Batch& batch) const override { ... }
//   };
//   Loader loader(std::make_shared<const Prices>(), RandomSampler(size), {.batch_size = 64, .threads = 2});
#pragma once

#include <cstdint>
#include <span>

#include <lockstep/data/loader_options.h>

namespace lockstep {

/// Immutable: the loader calls get() from any of its threads, several at once.
class BatchDataset {
 public:
  virtual ~BatchDataset() = default;
  virtual std::int64_t size() const = 0;
  /// Fills batch.images and batch.labels with the samples at `indices`, the first dimension being
  /// theirs; the tensors may have any further dimensions and any dtype. `batch` holds what an
  /// earlier call left in the same buffer, so that its memory can be used again (torch::out variants).
  /// For a GPU they are copied there beside the trainer's work only when they are pinned.
  /// What it throws leaves Loader::next().
  virtual void get(std::span<const std::int64_t> indices, Batch& batch) const = 0;
};

}  // namespace lockstep
