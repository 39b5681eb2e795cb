// Joins parameters that are adjacent in memory, with adjacent gradients, into flat tensors that a
// kernel takes at once.
//
// DistributedDataParallel with flat parameters creates this layout: each parameter and gradient
// begins at a multiple of 64 bytes, with zeros between. On the CPU, where the kernels process
// memory in vectors, a run includes these zeros, which every update rule leaves zero. The address
// does not show whether such memory is padding or another optimizer's tensor that is currently
// zero, so it is checked in each step. On a GPU, where the check would have to wait, runs end at
// gaps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <torch/types.h>

#include <lockstep/optim/update_rule.h>

namespace lockstep::detail {

/// The addresses of each parameter and its gradient; null for a gradient that is undefined, sparse,
/// or a lazy conjugate or negative.
using Addresses = std::vector<const void*>;
Addresses addresses_of(const Tensors& parameters);

/// Finds the runs by address. Memory between two parameters, or after the last one, is included
/// only if it is less than 64 bytes of zeros within one storage on the CPU, and if this also holds
/// for the gradients. Shares and holds the memory of both. Not thread-safe.
class FlatRuns {
 public:
  /// Parameters without a gradient are in no run.
  explicit FlatRuns(const Tensors& parameters);

  /// Whether the tensors are still at the same addresses, with the same types and numbers of
  /// elements, and the padding is still zero.
  bool fit(const Tensors& parameters) const;
  /// Whether every gradient is in a run and some run has more than one gradient.
  bool useful() const { return complete_ && parameters_.size() < members_; }

  const Tensors& parameters() const { return parameters_; }  ///< one flat tensor per run
  const Tensors& gradients() const { return gradients_; }
  /// For each run, the indices of its parameters, in the order of memory.
  const std::vector<std::vector<std::size_t>>& members() const { return runs_; }

  /// Returns the part of `flat` at the offset that `parameter` has in `run`, one of parameters();
  /// `flat` has the layout of `run`.
  static torch::Tensor part(const torch::Tensor& flat, const torch::Tensor& run,
                            const torch::Tensor& parameter);

  /// Less than 64 bytes after a tensor of a run that belong to none of the run's tensors.
  struct Padding {
    const std::byte* begin;
    std::size_t bytes;
    std::uint64_t value_bits;  ///< mask of 8 bytes: all bits but the elements' sign bits
    bool is_zero() const;
  };

 private:
  // What an address does not show.
  struct Contents {
    torch::ScalarType type = torch::ScalarType::Undefined;
    std::int64_t elements = 0;
    bool operator==(const Contents&) const = default;
  };
  static Contents contents_of(const torch::Tensor& tensor);
  void take_along_padding_after(const torch::Tensor& parameter);

  Addresses addresses_;
  std::vector<Contents> contents_;  // for each address; empty where it is null
  std::vector<Padding> paddings_;
  std::size_t members_ = 0;
  // False if a gradient is sparse, lazy, or of other strides or another type.
  bool complete_ = true;
  std::vector<std::vector<std::size_t>> runs_;
  Tensors parameters_;
  Tensors gradients_;
};

}  // namespace lockstep::detail
