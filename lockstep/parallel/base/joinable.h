// Which tensors, computed from parts of a batch, can be joined along the first dimension.
#pragma once

#include <string>

#include <torch/types.h>

namespace lockstep::parallel {

/// Whether both are undefined, or have the same dtype and the same sizes, but for the first
/// dimension.
bool joinable(const torch::Tensor& a, const torch::Tensor& b);

/// The dtype and sizes of a tensor, or "undefined", for messages.
std::string described(const torch::Tensor& tensor);

}  // namespace lockstep::parallel
