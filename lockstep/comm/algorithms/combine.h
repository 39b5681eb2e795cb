// Combines pieces of tensors on any device.
#pragma once

#include <vector>

#include <torch/types.h>

#include <lockstep/comm/call/reduce_op.h>

namespace lockstep::comm {

/// destination = sources[0] op sources[1] op ..., element by element and in that order. The tensors
/// are flat, contiguous, and of one size, type and device; the destination may be one of the
/// sources. Uses reduce() of reduce.h on the CPU. Other devices use LibTorch's operators on the
/// current stream and support only sum, product, min, max and the bitwise operations; any other
/// throws InternalError.
void combine(const std::vector<torch::Tensor>& sources, torch::Tensor destination, ReduceOp op);

/// Multiplies every element by `factor`, in place.
void scale_tensor(torch::Tensor tensor, double factor);

}  // namespace lockstep::comm
