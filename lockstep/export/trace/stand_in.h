// Tensors without memory in place of recorded ones.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/jit_type.h>

namespace lockstep::onnx {

/// A tensor of the recorded type and device and of these sizes, with strides like the recorded
/// ones. It has no memory: an access to its data is an exception.
at::Tensor stand_in_for(const c10::TensorType& type, const std::vector<std::int64_t>& sizes);

}  // namespace lockstep::onnx
