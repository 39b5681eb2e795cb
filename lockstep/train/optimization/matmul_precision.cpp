#include <lockstep/train/optimization/matmul_precision.h>

#include <lockstep/core/options.h>

namespace lockstep {

namespace {

const detail::NamedValues<MatmulPrecision>& named_matmul_precisions() {
  static const detail::NamedValues<MatmulPrecision> all = {{"highest", MatmulPrecision::kHighest},
                                                           {"high", MatmulPrecision::kHigh},
                                                           {"medium", MatmulPrecision::kMedium}};
  return all;
}

}  // namespace

const std::vector<std::string>& matmul_precision_names() {
  return named_matmul_precisions().names();
}

std::string to_string(MatmulPrecision precision) {
  return named_matmul_precisions().name_of(precision);
}

MatmulPrecision parse_matmul_precision(const std::string& name) {
  return named_matmul_precisions().value_of("Trainer", "matmul_precision", name);
}

}  // namespace lockstep
