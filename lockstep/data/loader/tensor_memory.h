// Memory of tensors that is used again, batch after batch.
#pragma once

#include <torch/types.h>

namespace lockstep {

/// Memory of `sizes` and `strides` in `memory`, which is replaced where it does not fit; a batch
/// with fewer samples fits into that of one with more.
torch::Tensor reuse(torch::Tensor& memory, torch::IntArrayRef sizes, torch::IntArrayRef strides,
                    const torch::TensorOptions& options);

/// A copy of `from` in `memory`, with from's layout and the device and pinning of `options`; on a
/// GPU it is ready when the current stream has passed. Undefined tensors stay so; of one that is
/// not strided (sparse, say) the copy has memory of its own.
torch::Tensor copy_reusing(torch::Tensor& memory, const torch::Tensor& from,
                           const torch::TensorOptions& options);

}  // namespace lockstep
