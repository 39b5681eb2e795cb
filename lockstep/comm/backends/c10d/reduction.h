// Which reductions PyTorch's libraries support, and fallbacks for the others.
//
// Gloo and NCCL have no 16-bit integers; Gloo rounds halves after every addition; NCCL has no
// bitwise operations; neither lets a NaN win in min and max. Bools are theirs as bytes, with other
// names for the operations; Gloo's averages are sums that are divided, and all pre-multiplied sums
// are multiplied here first.
#pragma once

#include <functional>

#include <torch/types.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <lockstep/comm/backends/c10d/c10d_backend.h>
#include <lockstep/comm/call/description.h>

namespace lockstep::c10d_adapter {

/// Whether the library reduces this, after what prepare() does. If not: gather and combine().
bool library_reduces(Library library, DataType type, ReduceOp op);

/// A reduction as the library is asked for it.
struct LibraryReduction {
  torch::Tensor tensor;  ///< what the library gets, and may overwrite
  c10d::ReduceOp op;
  /// Turns `tensor`, reduced, into what was asked for, in the type of `destination`.
  std::function<void(torch::Tensor destination)> finish;
};

/// `tensor` is this rank's values; it is used in place (and so destroyed) where `in_place`, else
/// copied.
LibraryReduction prepare(Library library, const CallDescription& call, torch::Tensor tensor,
                         bool in_place, int size);

/// The reduction of `size` pieces that lie in `pieces`, [size n], one after the other, in their
/// order.
void combine(torch::Tensor destination, const torch::Tensor& pieces, int size,
             const CallDescription& call);

}  // namespace lockstep::c10d_adapter
