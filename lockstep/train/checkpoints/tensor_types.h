// Maps LibTorch's tensor types to safetensors' names.
#pragma once

#include <optional>
#include <string_view>

#include <torch/types.h>

namespace lockstep::train {

/// "F32", ...; empty for a type that safetensors does not support. Lockstep's .pt files support the
/// same types, except "C64".
std::string_view dtype_of(torch::ScalarType type);

/// Nothing for a name unknown to safetensors.
std::optional<torch::ScalarType> scalar_type_of(std::string_view dtype);

}  // namespace lockstep::train
