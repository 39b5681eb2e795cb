// The precision of float32 matrix products.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

/// The values of torch.set_float32_matmul_precision. Convolutions are not affected: as in PyTorch,
/// cuDNN may use TF32 for them unless the program disables it.
enum class MatmulPrecision {
  kHighest,  ///< float32
  kHigh,     ///< TF32 (10 bits of mantissa) on GPUs of the Ampere generation and later
  kMedium,   ///< as kHigh on GPUs; bfloat16 (7 bits of mantissa) on CPUs that support it
};

/// "highest", "high", "medium".
const std::vector<std::string>& matmul_precision_names();
std::string to_string(MatmulPrecision precision);
/// The inverse; ConfigError for another word.
MatmulPrecision parse_matmul_precision(const std::string& name);

}  // namespace lockstep
