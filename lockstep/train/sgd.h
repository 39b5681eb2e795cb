// Stochastic gradient descent, all parameters in one fused kernel.
#pragma once

#include <string>
#include <vector>

#include <torch/torch.h>

namespace lockstep {

struct SgdOptions {
  double lr = 0.01;
  double momentum = 0;
  double weight_decay = 0;  ///< added to the gradient: L2, not decoupled
  bool nesterov = false;    ///< needs momentum
};

/// torch::optim::SGD without dampening, to rounding: v = momentum v + (g + weight_decay w),
/// w = w - lr v (Nesterov: w - lr (g + momentum v)). One call of LibTorch's fused kernel a step
/// instead of several operations a parameter.
///
/// Holds the module's trainable parameters, not the module. A parameter without a gradient is
/// skipped. Not thread-safe.
class Sgd {
 public:
  /// ConfigError for options that cannot be.
  Sgd(const torch::nn::Module& module, const SgdOptions& options);

  /// For all parameters that have a gradient.
  void step();
  /// Makes the gradients zero in place: they may be views into a reducer's buckets.
  void zero_grad();

  double lr() const { return options_.lr; }
  void set_lr(double lr) { options_.lr = lr; }

  /// Momentum of each parameter under its name, sharing memory: zero before the first step; empty
  /// when the momentum option is 0.
  std::vector<std::pair<std::string, torch::Tensor>> momentum() const;

 private:
  SgdOptions options_;
  std::vector<std::string> names_;
  std::vector<torch::Tensor> parameters_;
  std::vector<torch::Tensor> momentum_;
};

}  // namespace lockstep
