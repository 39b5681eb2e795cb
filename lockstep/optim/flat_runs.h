// Parameters that lie in memory beside each other, as their gradients do: one flat tensor to a
// kernel.
//
// DistributedDataParallel with flat parameters lays both out so: each begins at a multiple of 64
// bytes, zeros between. A run takes these zeros along, which every update rule leaves zero, on the
// CPU, where the kernels go through memory by vectors. What lies there may also be another
// optimizer's tensor that is zero for now, which no address tells; so they are looked at in each
// step. On a GPU, where that would mean to wait for it, runs end at gaps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <torch/types.h>

#include <lockstep/optim/update_rule.h>

namespace lockstep {

/// The addresses of each parameter and its gradient; null for a gradient that is undefined or
/// sparse.
using Addresses = std::vector<const void*>;
Addresses addresses_of(const Tensors& parameters);

/// Finds the runs by address. Memory between two parameters, and after the last, is taken along
/// only if it is less than 64 bytes of zeros within one storage on the CPU, for the parameters as
/// for the gradients. Shares and holds the memory of both. Not thread-safe.
class FlatRuns {
 public:
  /// Parameters without a gradient are in no run.
  explicit FlatRuns(const Tensors& parameters);

  /// Whether the tensors are still where they were, and zeros where nothing was between them.
  bool fit(const Tensors& parameters) const;
  /// Whether every gradient is in a run and some run has more than one.
  bool useful() const { return complete_ && parameters_.size() < members_; }

  const Tensors& parameters() const { return parameters_; }  ///< of each run, flat
  const Tensors& gradients() const { return gradients_; }
  /// For each run, the indices of its parameters, in the order of memory.
  const std::vector<std::vector<std::size_t>>& members() const { return runs_; }

  /// `flat` is like parameters()[run]: what lies in it where `parameter` lies in the run.
  static torch::Tensor part(const torch::Tensor& flat, const torch::Tensor& run,
                            const torch::Tensor& parameter);

  /// Less than 64 bytes beside a tensor of a run that belong to none of it.
  struct Padding {
    const std::byte* begin;
    std::size_t bytes;
    std::uint64_t value_bits;  ///< of 8 bytes, all that are no sign
    bool is_zero() const;
  };

 private:
  void take_along_padding_after(const torch::Tensor& parameter);

  Addresses addresses_;
  std::vector<Padding> paddings_;
  std::size_t members_ = 0;
  bool complete_ = true;  // no gradient is sparse, or of other strides or another type
  std::vector<std::vector<std::size_t>> runs_;
  Tensors parameters_;
  Tensors gradients_;
};

}  // namespace lockstep
