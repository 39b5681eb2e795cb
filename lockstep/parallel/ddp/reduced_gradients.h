// Tracks which gradients are still the result of a reduction.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <torch/types.h>

#include <lockstep/parallel/ddp/bucket_memory.h>
#include <lockstep/parallel/ddp/grad_bucket.h>

namespace lockstep::parallel {

/// After a reduce-scatter a rank's buckets hold the mean in one slice and the rank's own sums in
/// the others, so another backward must not add to them. Gradients may be cleared without notice
/// (Module::zero_grad() resets them), so a hook on each parameter checks before its next gradient
/// arrives. The destructor removes the hooks. Not thread-safe: one backward at a time.
class ReducedGradients {
 public:
  explicit ReducedGradients(const std::vector<detail::NamedParameter>& parameters);
  ~ReducedGradients();
  ReducedGradients(const ReducedGradients&) = delete;
  ReducedGradients& operator=(const ReducedGradients&) = delete;

  /// Marks the bucket's gradients as the result of a reduction.
  void insert(const GradBucket& bucket);
  /// Marks the bucket's gradients as a backward's. Returns the name of a parameter whose gradient
  /// is still, in part, a reduction's result, or an empty string.
  std::string erase(const GradBucket& bucket);
  /// Call it after all gradients have been zeroed.
  void clear();
  /// True if no existing gradient is the result of a reduction.
  bool empty() const;

 private:
  struct Entry {
    std::string name;
    torch::Tensor parameter;
    bool reduced = false;
    std::optional<unsigned> hook = std::nullopt;
    /// Reads the gradient's values only if nothing else shows that it was cleared.
    bool left_over() const;
  };
  std::map<const torch::TensorImpl*, Entry> entries_;
};

}  // namespace lockstep::parallel
