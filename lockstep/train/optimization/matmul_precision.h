// How exactly float32 matrices are multiplied.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

/// The words of torch.set_float32_matmul_precision. Convolutions are not affected: cuDNN may use
/// TF32 for them unless the program says otherwise, as in PyTorch.
enum class MatmulPrecision {
  kHighest,  ///< in float32
  kHigh,     ///< on GPUs of the Ampere generation and later in TF32, with 10 bits of mantissa
  kMedium,   ///< the same on GPUs; on CPUs that have it in bfloat16, with 7 bits
};

/// "highest", "high", "medium".
const std::vector<std::string>& matmul_precision_names();
std::string to_string(MatmulPrecision precision);
/// The inverse; ConfigError for another word.
MatmulPrecision parse_matmul_precision(const std::string& name);

}  // namespace lockstep
