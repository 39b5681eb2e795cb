// The element types that ranks exchange. This header does not depend on LibTorch, so that engines
// can be tested without it.
#pragma once

#include <cstddef>
#include <cstdint>

#include <lockstep/core/export.h>

namespace lockstep::detail {

enum class DataType : std::uint8_t {
  kFloat32,
  kFloat64,
  kFloat16,
  kBFloat16,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kUInt8,
  kBool,  ///< one byte, 0 or 1
  kByte,  ///< any other type, moved byte by byte; cannot be reduced
};

LOCKSTEP_API std::size_t element_size(DataType type);    ///< in bytes
LOCKSTEP_API const char* data_type_name(DataType type);  ///< PyTorch's name, such as "float32"
LOCKSTEP_API bool is_floating_point(DataType type);

}  // namespace lockstep::detail
