// Which gradients still are what a reduction made of them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <torch/types.h>

#include <lockstep/parallel/ddp/bucket_memory.h>
#include <lockstep/parallel/ddp/grad_bucket.h>

namespace lockstep {

/// A rank's buckets after a reduce-scatter hold the mean in one slice and the rank's own sums in
/// the others: another backward must not add to that. Gradients may be cleared where nobody tells
/// (Module::zero_grad() takes them away), so each parameter has a hook that looks before its next
/// gradient arrives. The destructor removes the hooks. Not thread-safe: one backward at a time.
class ReducedGradients {
 public:
  explicit ReducedGradients(const std::vector<NamedParameter>& parameters);
  ~ReducedGradients();
  ReducedGradients(const ReducedGradients&) = delete;
  ReducedGradients& operator=(const ReducedGradients&) = delete;

  /// The bucket's gradients are the result of a reduction from here on.
  void insert(const GradBucket& bucket);
  /// They are a backward's. Empty, or the name of the parameter whose gradient is, in part, still a
  /// result.
  std::string erase(const GradBucket& bucket);
  /// All have been made zero.
  void clear();
  /// No gradient that is there is a result.
  bool empty() const;

 private:
  struct Entry {
    std::string name;
    torch::Tensor parameter;
    bool reduced = false;
    std::optional<unsigned> hook = std::nullopt;
    /// Reads the gradient only where nobody cleared it in a way that shows.
    bool left_over() const;
  };
  std::map<const torch::TensorImpl*, Entry> entries_;
};

}  // namespace lockstep
