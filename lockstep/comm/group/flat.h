// Views tensors as one-dimensional memory without LibTorch's dispatcher: a call on a few bytes
// takes less time than one dispatched operator.
#pragma once

#include <vector>

#include <torch/types.h>

#include <lockstep/comm/call/description.h>

namespace lockstep::comm {

/// The memory of a dense tensor as a one-dimensional tensor, outside of autograd. Types that can
/// only be moved become bytes.
torch::Tensor flat_alias(const torch::Tensor& tensor);

/// Whether the elements lie in memory without gaps, either in logical order or as channels_last (2d
/// or 3d). Ranks with tensors of the same shape agree on such an order. Any other order, such as
/// that of a transposed view, is specific to this rank.
bool is_memory_format(const torch::Tensor& tensor);

/// Whether the tensors are contiguous and adjacent in one block of memory, in the given order.
bool are_consecutive(const std::vector<torch::Tensor>& tensors);

/// A single one-dimensional tensor that covers all the adjacent tensors.
torch::Tensor flat_alias(const std::vector<torch::Tensor>& consecutive);

/// The sizes of a tensor, in memory order if it is not contiguous. For a type that can only be
/// moved, the bytes of an element are appended.
Shape shape_in_memory(const torch::Tensor& tensor);
Shape logical_shape(const torch::Tensor& tensor);

}  // namespace lockstep::comm
