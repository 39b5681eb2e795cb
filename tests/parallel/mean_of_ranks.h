// The oracle of DistributedDataParallel's tests: computes each rank's gradients separately and
// takes their mean.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include <lockstep/core/error.h>

namespace lockstep::testing_support {

using Gradients = std::map<std::string, torch::Tensor>;  // undefined where there is none

inline Gradients gradients_of(const torch::nn::Module& module) {
  Gradients gradients;
  for (const auto& item : module.named_parameters()) {
    const auto& gradient = item.value().grad();
    gradients[item.key()] = gradient.defined()
                                ? gradient.to_dense().to(torch::kCPU, torch::kFloat64).clone()
                                : gradient;
  }
  return gradients;
}

/// `run(rank)` runs one rank's backward and returns the module. A gradient that only some ranks
/// have counts as zero on the others.
template <class Run>
Gradients mean_of_ranks(int size, Run&& run) {
  Gradients sums;
  for (int rank = 0; rank < size; ++rank) {
    for (const auto& [name, gradient] : gradients_of(*run(rank))) {
      torch::Tensor& sum = sums[name];
      if (gradient.defined()) sum = sum.defined() ? sum + gradient : gradient;
    }
  }
  for (auto& [name, sum] : sums) {
    if (sum.defined()) sum = sum / size;
  }
  return sums;
}

inline void expect_gradients(const torch::nn::Module& module, const Gradients& expected,
                             double tolerance = 1e-6) {
  for (const auto& [name, gradient] : gradients_of(module)) {
    const torch::Tensor& wanted = expected.at(name);
    if (gradient.defined() != wanted.defined()) {
      throw Error(name +
                  (gradient.defined() ? " has a gradient, expected none" : " has no gradient"));
    }
    if (!gradient.defined()) continue;
    const double difference =
        ((gradient - wanted).norm() / wanted.norm().clamp_min(1e-12)).item<double>();
    if (!(difference <= tolerance)) throw Error(lockstep::str(name, " differs by ", difference));
  }
}

}  // namespace lockstep::testing_support
