// Which reductions PyTorch's libraries support, and fallbacks for the others.
//
// Gloo and NCCL have no 16-bit integers, and their min and max do not propagate NaN. Gloo rounds
// 16-bit floating-point values after every addition. NCCL has no bitwise operations. Bools are
// reduced as bytes, by the equivalent operation. An average over Gloo is a sum that is divided
// afterwards. For a pre-multiplied sum, the values are always multiplied here before they are
// added.
#pragma once

#include <functional>

#include <torch/types.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <lockstep/comm/call/description.h>

namespace lockstep::c10d_adapter {

/// What a library's reductions can do.
struct LibraryReductions {
  bool averages = false;        ///< divides a sum by the number of ranks itself
  bool bitwise = false;         ///< has bitwise and, or, xor
  bool precise_halves = false;  ///< does not round 16-bit floating-point values in between
  bool scatters = false;        ///< its reduce_scatter sends each rank only the rank's own piece
};

/// Whether the library supports this reduction of a tensor from prepare(). If not, gather the
/// values and combine() them.
bool library_reduces(const LibraryReductions& library, detail::DataType type, ReduceOp op);

/// The library's part of a reduction.
struct LibraryReduction {
  torch::Tensor tensor;  ///< input of the library, which may overwrite it
  c10d::ReduceOp op;
  /// Turns the reduced `tensor` into the result of the call, in the type of `destination`.
  std::function<void(torch::Tensor destination)> finish;
};

/// `tensor` holds this rank's values. It is overwritten if `in_place`, else copied.
LibraryReduction prepare(const LibraryReductions& library, const CallDescription& call,
                         torch::Tensor tensor, bool in_place, int size);

/// Reduces, in their order, the `size` pieces of n elements that `pieces` holds one after the
/// other.
void combine(torch::Tensor destination, const torch::Tensor& pieces, int size,
             const CallDescription& call);

}  // namespace lockstep::c10d_adapter
