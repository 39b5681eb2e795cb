// The parameters, gradients and results of make_golden.py.
#pragma once

#include <cmath>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <torch/types.h>

namespace lockstep::testing_support {

inline constexpr std::int64_t kGoldenSteps = 20;
inline const std::vector<std::vector<std::int64_t>> kGoldenShapes = {{7, 3}, {5}, {2, 2, 3, 3}, {}};

template <class Formula>
torch::Tensor formula_tensor(std::size_t parameter, Formula&& formula) {
  const torch::Tensor values =
      torch::empty(kGoldenShapes[parameter], torch::TensorOptions().dtype(torch::kFloat64));
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    values.data_ptr<double>()[i] = formula(static_cast<double>(i));
  }
  return values.to(torch::kFloat32);
}

inline std::vector<torch::Tensor> golden_parameters() {
  std::vector<torch::Tensor> parameters;
  for (std::size_t p = 0; p < kGoldenShapes.size(); ++p) {
    parameters.push_back(
        formula_tensor(p, [&](double i) { return std::sin(0.7 * i + static_cast<double>(p)); }));
  }
  return parameters;
}

inline torch::Tensor golden_gradient(std::size_t p, std::int64_t step) {
  return formula_tensor(p, [&](double i) {
    return std::cos(0.3 * (i + 1) * static_cast<double>(step) + static_cast<double>(p));
  });
}

/// In the cases that skip, parameter 1 has no gradient in the first two steps and in one later
/// step.
inline bool golden_skips(std::size_t p, std::int64_t step) {
  return p == 1 && (step == 1 || step == 2 || step == 9);
}

inline torch::Tensor golden_values(const std::string& name) {
  std::ifstream file(LOCKSTEP_GOLDEN_OPTIMIZERS);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string word;
    if (!(words >> word) || word != name) continue;
    std::vector<float> values;
    while (words >> word) values.push_back(std::stof(word));
    return torch::tensor(values);
  }
  throw std::runtime_error("no golden values of " + name);
}

inline torch::Tensor joined(const std::vector<torch::Tensor>& tensors) {
  std::vector<torch::Tensor> flat;
  for (const auto& tensor : tensors) flat.push_back(tensor.detach().reshape(-1));
  return torch::cat(flat);
}

}  // namespace lockstep::testing_support
