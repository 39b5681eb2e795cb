// LibTorch's element types as ours.
#pragma once

#include <torch/types.h>

#include <lockstep/comm/call/data_type.h>

namespace lockstep {

/// kByte for types that are only moved: complex (sums of which are those of its parts), quantized,
/// float8, unsigned of 16 bits and more.
DataType data_type_of(torch::ScalarType type);

/// How many of ours one element of `type` is: 1, or its bytes where it is moved as kByte.
std::int64_t units_per_element(torch::ScalarType type);

/// PyTorch's name, for messages: "float32", "complex64".
std::string type_name(torch::ScalarType type);

}  // namespace lockstep
