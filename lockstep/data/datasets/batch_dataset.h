// A data set of one's own that makes whole batches, of any structure: text, sensor readings,
// graphs, states of a simulation.
//
//   struct Quotes {
//     torch::Tensor prices, volumes;
//   };
//   class Market final : public BatchDataset<Quotes> {
//    public:
//     std::int64_t size() const override { return days_; }
//     void get(const BatchRequest& request, Quotes& batch) const override { ... }
//   };
//   BatchLoader loader(std::make_shared<const Market>(), RandomSampler(days), {.batch_size = 64});
//   for (const Quotes& batch : loader) ...
#pragma once

#include <cstdint>

#include <lockstep/data/datasets/batch_request.h>
#include <lockstep/data/datasets/batch_structure.h>

namespace lockstep {

/// Immutable: the loader calls get() from any of its threads, several at once. What a batch may be
/// made of, for_each_tensor() says.
template <BatchOfTensors B>
class BatchDataset {
 public:
  using BatchType = B;

  virtual ~BatchDataset() = default;
  virtual std::int64_t size() const = 0;
  /// Fills `batch` with the samples at request.indices, in any shapes and dtypes. `batch` holds
  /// what an earlier call left in the same buffer, so that its memory can be used again (torch::out
  /// variants); on the way to a GPU that is pinned memory, which then need not be copied once more.
  /// Random choices that come from request.key(i) are the same for any number of threads and ranks,
  /// and after a resume. What it throws leaves the loader's next().
  virtual void get(const BatchRequest& request, B& batch) const = 0;
};

}  // namespace lockstep
