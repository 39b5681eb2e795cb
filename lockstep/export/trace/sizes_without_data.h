// The sizes of an operation's results, without computing them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

namespace lockstep::onnx {

/// The sizes of the tensors that `op` returns for `arguments`, in order, of which only the sizes,
/// strides and types count. LibTorch's kernels for the device meta determine them. None if the
/// operation has no such kernel, or if its kernel reads values.
std::optional<std::vector<std::vector<std::int64_t>>> sizes_without_data(
    const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments);

}  // namespace lockstep::onnx
