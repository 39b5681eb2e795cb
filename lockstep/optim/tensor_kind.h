// The type, shape and device of a tensor. Kernels rely on them when they process the memory of
// several tensors together, and set_data(), Module::to() and resize_() change them.
#pragma once

#include <string>

#include <torch/types.h>

#include <lockstep/core/strings.h>

namespace lockstep::optim {

/// Whether `a` and `b` have the same type, shape and device. Costs a few comparisons.
inline bool alike(const torch::Tensor& a, const torch::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && a.device() == b.device();
}

/// For messages: "Float [2, 3] on cpu".
inline std::string kind_text(const torch::Tensor& tensor) {
  return lockstep::str(tensor.scalar_type(), ' ', tensor.sizes(), " on ", tensor.device());
}

}  // namespace lockstep::optim
