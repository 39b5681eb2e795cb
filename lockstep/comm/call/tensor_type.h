// Maps LibTorch's element types to Lockstep's.
#pragma once

#include <torch/types.h>

#include <lockstep/comm/call/data_type.h>

namespace lockstep::comm {

/// Returns kByte for types that can only be moved: complex, quantized, float8, and unsigned types
/// of 16 bits and more. Complex tensors are summed as their real and imaginary parts.
detail::DataType data_type_of(torch::ScalarType type);

/// Number of Lockstep elements per element of `type`: 1, or its size in bytes if it is moved as
/// kByte.
std::int64_t units_per_element(torch::ScalarType type);

/// PyTorch's name, for messages: "float32", "complex64".
std::string type_name(torch::ScalarType type);

}  // namespace lockstep::comm
