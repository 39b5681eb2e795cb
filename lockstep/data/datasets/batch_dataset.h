// A user-defined data set that makes whole batches, of any structure: text, sensor readings,
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

/// Implementations must be immutable: the loader calls get() from several of its threads at once.
/// for_each_tensor() lists the types that a batch may consist of.
template <BatchOfTensors B>
class BatchDataset {
 public:
  using BatchType = B;

  virtual ~BatchDataset() = default;
  virtual std::int64_t size() const = 0;
  /// Fills `batch` with the samples at request.indices, in any shapes and dtypes. `batch` holds the
  /// result of an earlier call for the same buffer, so its memory can be reused (torch::out
  /// variants). If the loader copies its batches to a GPU, that memory is pinned, which saves
  /// another copy. Random choices that come from request.key(i) are the same for any number of
  /// threads and ranks, and after a resume. The loader's next() rethrows exceptions of this
  /// function.
  virtual void get(const BatchRequest& request, B& batch) const = 0;
};

}  // namespace lockstep
