// Tensors as one-dimensional memory, without LibTorch's dispatcher: a call on a few bytes takes
// less time than one dispatched operator.
#pragma once

#include <vector>

#include <torch/types.h>

#include <lockstep/comm/call/description.h>

namespace lockstep {

/// The memory of a tensor without gaps, as one dimension, outside of autograd. Types that are only
/// moved become bytes.
torch::Tensor flat_alias(const torch::Tensor& tensor);

/// Whether the elements lie in memory without gaps in logical order or as channels_last (2d or 3d):
/// in an order that all ranks mean when they have the same shape. Any other, of a transposed view
/// say, is this rank's own.
bool is_memory_format(const torch::Tensor& tensor);

/// Whether the tensors are contiguous pieces of one memory, each behind the one before.
bool are_consecutive(const std::vector<torch::Tensor>& tensors);

/// All of consecutive tensors as one dimension.
torch::Tensor flat_alias(const std::vector<torch::Tensor>& consecutive);

/// The sizes of a tensor, in the order of memory if it is not contiguous; of a type that is only
/// moved also the bytes of an element.
Shape shape_in_memory(const torch::Tensor& tensor);
Shape logical_shape(const torch::Tensor& tensor);

}  // namespace lockstep
