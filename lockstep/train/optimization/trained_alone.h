// Freezes the parameters of other optimizers during a step. Internal to lockstep/train.
#pragma once

#include <cstddef>
#include <vector>

#include <torch/types.h>

#include <lockstep/optim/update_rule.h>

namespace lockstep::train {

/// While it lives, the parameters of all optimizers but one require no gradient, so that a backward
/// neither computes nor averages theirs. Does nothing for fewer than two optimizers. Lightning's
/// toggle_optimizer().
class TrainedAlone {
 public:
  TrainedAlone(const std::vector<Tensors>& parameters_of_optimizers, std::size_t optimizer) {
    for (std::size_t i = 0; i < parameters_of_optimizers.size(); ++i) {
      if (i == optimizer) continue;
      for (const torch::Tensor& parameter : parameters_of_optimizers[i]) {
        if (!parameter.requires_grad()) continue;
        frozen_.push_back(parameter);
        parameter.requires_grad_(false);
      }
    }
  }
  ~TrainedAlone() {
    for (const torch::Tensor& parameter : frozen_) parameter.requires_grad_(true);
  }
  TrainedAlone(const TrainedAlone&) = delete;
  TrainedAlone& operator=(const TrainedAlone&) = delete;

 private:
  Tensors frozen_;
};

}  // namespace lockstep::train
