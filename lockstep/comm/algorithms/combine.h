// Combining pieces of tensors, wherever they live.
#pragma once

#include <vector>

#include <torch/types.h>

#include <lockstep/comm/call/reduce_op.h>

namespace lockstep {

/// destination = sources[0] op sources[1] op ..., element by element and in that order. Tensors are
/// flat, contiguous, of one size, type and device; the destination may be one of the sources. On
/// the CPU through reduce() of reduce.h. On other devices, with LibTorch's operators on the current
/// stream, only sum, product, min, max and the bitwise ones (InternalError).
void combine(const std::vector<torch::Tensor>& sources, torch::Tensor destination, ReduceOp op);

/// Every element times `factor`.
void scale_tensor(torch::Tensor tensor, double factor);

}  // namespace lockstep
