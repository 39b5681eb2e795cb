// The types of tensors that files hold, by LibTorch's and by safetensors' names.
#pragma once

#include <optional>
#include <string_view>

#include <torch/types.h>

namespace lockstep {

/// "F32", ...; empty for a type that safetensors and .pt files of Lockstep do not hold.
std::string_view dtype_of(torch::ScalarType type);

/// Nothing for a name that safetensors does not have.
std::optional<torch::ScalarType> scalar_type_of(std::string_view dtype);

}  // namespace lockstep
