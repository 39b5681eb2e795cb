// Reuses the memory of tensors, batch after batch.
#pragma once

#include <torch/types.h>

namespace lockstep::data {

/// Returns a tensor of `sizes` and `strides` in `memory`, which is replaced if it does not fit. A
/// batch with fewer samples fits into the memory of one with more.
torch::Tensor reuse(torch::Tensor& memory, torch::IntArrayRef sizes, torch::IntArrayRef strides,
                    const torch::TensorOptions& options);

/// Copies `from` into `memory`, with from's layout and the device and pinning of `options`. On a
/// GPU the copy is complete once the current stream has reached this point. Undefined tensors stay
/// undefined. The copy of a tensor that is not strided (for example, sparse) has new memory.
torch::Tensor copy_reusing(torch::Tensor& memory, const torch::Tensor& from,
                           const torch::TensorOptions& options);

}  // namespace lockstep::data
