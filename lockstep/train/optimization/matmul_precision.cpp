#include <lockstep/train/optimization/matmul_precision.h>

#include <algorithm>

#include <lockstep/core/options.h>

namespace lockstep {

const std::vector<std::string>& matmul_precision_names() {
  static const std::vector<std::string> names = {"highest", "high", "medium"};
  return names;
}

std::string to_string(MatmulPrecision precision) {
  return matmul_precision_names().at(static_cast<std::size_t>(precision));
}

MatmulPrecision parse_matmul_precision(const std::string& name) {
  const std::vector<std::string>& names = matmul_precision_names();
  OptionCheck("Trainer").one_of("matmul_precision", name, names);
  return static_cast<MatmulPrecision>(std::ranges::find(names, name) - names.begin());
}

}  // namespace lockstep
