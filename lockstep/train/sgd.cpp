#include <lockstep/train/sgd.h>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>

namespace lockstep {

Sgd::Sgd(const torch::nn::Module& module, const SgdOptions& options) : options_(options) {
  const OptionCheck check("SGD");
  check.at_least("lr", options.lr, 0);
  check.in_range("momentum", options.momentum, 0, 1);
  check.at_least("weight_decay", options.weight_decay, 0);
  if (options.nesterov && options.momentum == 0) {
    throw ConfigError("SGD: nesterov needs a momentum above 0, got 0");
  }
  const torch::NoGradGuard no_grad;
  for (const auto& item : module.named_parameters()) {
    if (!item.value().requires_grad()) continue;
    names_.push_back(item.key());
    parameters_.push_back(item.value());
    if (options.momentum > 0) momentum_.push_back(torch::zeros_like(item.value()));
  }
}

void Sgd::step() {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> parameters;
  std::vector<torch::Tensor> gradients;
  std::vector<torch::Tensor> momentum;
  parameters.reserve(parameters_.size());
  gradients.reserve(parameters_.size());
  momentum.reserve(momentum_.size());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const torch::Tensor& parameter = parameters_[i];
    torch::Tensor gradient = parameter.grad();
    if (!gradient.defined()) continue;
    // The kernel walks through memory, so the layouts must agree.
    if (gradient.strides() != parameter.strides()) {
      gradient = torch::empty_like(parameter).copy_(gradient);
    }
    parameters.push_back(parameter);
    gradients.push_back(std::move(gradient));
    if (!momentum_.empty()) momentum.push_back(momentum_[i]);
  }
  if (parameters.empty()) return;
  // Momentum starts as zero, which makes the first step like every other.
  at::_fused_sgd_(parameters, gradients, momentum, options_.weight_decay, options_.momentum,
                  options_.lr, /*dampening=*/0.0, options_.nesterov, /*maximize=*/false,
                  /*is_first_step=*/false);
}

void Sgd::zero_grad() {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> gradients;
  gradients.reserve(parameters_.size());
  for (const auto& parameter : parameters_) {
    if (const auto& gradient = parameter.grad(); gradient.defined()) gradients.push_back(gradient);
  }
  if (!gradients.empty()) at::_foreach_zero_(gradients);
}

std::vector<std::pair<std::string, torch::Tensor>> Sgd::momentum() const {
  std::vector<std::pair<std::string, torch::Tensor>> named;
  for (std::size_t i = 0; i < momentum_.size(); ++i) named.emplace_back(names_[i], momentum_[i]);
  return named;
}

}  // namespace lockstep
