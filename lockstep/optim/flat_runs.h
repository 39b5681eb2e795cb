// Parameters that lie in memory beside each other, as their gradients do: one flat tensor to a
// kernel.
//
// DistributedDataParallel with flat parameters lays both out so: each begins at a multiple of 64
// bytes, zeros between. A run takes these zeros along, which every update rule leaves zero.
#pragma once

#include <vector>

#include <torch/torch.h>

#include <lockstep/optim/update_rule.h>

namespace lockstep {

/// Of each parameter and its gradient; null for a gradient that is none, or is sparse.
using Addresses = std::vector<const void*>;
Addresses addresses_of(const Tensors& parameters);

/// Finds the runs by address. Memory between two parameters is taken along only if it is less than
/// 64 bytes of zeros within one storage, for the parameters as for the gradients. Shares and holds
/// the memory of both. Not thread-safe.
class FlatRuns {
 public:
  /// Parameters without a gradient are in no run.
  explicit FlatRuns(const Tensors& parameters);

  /// Whether the tensors are still where they were.
  bool fit(const Tensors& parameters) const;
  /// Whether every gradient is in a run and some run has more than one.
  bool useful() const { return complete_ && parameters_.size() < members_; }

  const Tensors& parameters() const { return parameters_; }  ///< of each run, flat
  const Tensors& gradients() const { return gradients_; }
  /// Of each run the indices of its parameters, in the order of memory.
  const std::vector<std::vector<std::size_t>>& members() const { return runs_; }

  /// `flat` is like parameters()[run]: what lies in it where `parameter` lies in the run.
  static torch::Tensor part(const torch::Tensor& flat, const torch::Tensor& run,
                            const torch::Tensor& parameter);

 private:
  Addresses addresses_;
  std::size_t members_ = 0;
  bool complete_ = true;  // no gradient is sparse, or of other strides or another type
  std::vector<std::vector<std::size_t>> runs_;
  Tensors parameters_;
  Tensors gradients_;
};

}  // namespace lockstep
