// The precision of float32 matrix products.
#pragma once

#include <string>
#include <vector>

#include <lockstep/core/export.h>

namespace lockstep {

/// The values that torch.set_float32_matmul_precision() accepts. Convolutions are not affected: as
/// in PyTorch, cuDNN may use TF32 for them unless the program disables it.
enum class MatmulPrecision {
  kHighest,  ///< float32
  kHigh,     ///< TF32 (10 bits of mantissa) on GPUs of the Ampere generation and later
  kMedium,   ///< like kHigh on GPUs; bfloat16 (7 bits of mantissa) on CPUs that support it
};

/// "highest", "high", "medium".
LOCKSTEP_API const std::vector<std::string>& matmul_precision_names();
LOCKSTEP_API std::string to_string(MatmulPrecision precision);
/// The inverse of to_string(). Throws ConfigError if `name` is not one of matmul_precision_names().
LOCKSTEP_API MatmulPrecision parse_matmul_precision(const std::string& name);

}  // namespace lockstep
