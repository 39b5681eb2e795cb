#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_fused_sgd.h>

#include <optional>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/optim/rules.h>

namespace lockstep::optim {
namespace {

// v = momentum v + (g + weight_decay w), w = w - lr v (Nesterov: w - lr (g + momentum v)).
class SgdRule final : public detail::UpdateRule {
 public:
  explicit SgdRule(const SgdOptions& options) : options_(options) {
    const OptionCheck check("SGD");
    check.at_least("lr", options.lr, 0);
    check.in_range("momentum", options.momentum, 0, 1);
    check.at_least("weight_decay", options.weight_decay, 0);
    if (options.nesterov && options.momentum == 0) {
      throw ConfigError("SGD: nesterov needs a momentum above 0, got 0");
    }
    if (options.momentum > 0) state_names_ = {"momentum_buffer"};
  }

  const std::string& name() const override { return name_; }
  const std::vector<std::string>& state_names() const override { return state_names_; }
  bool counts_steps() const override { return false; }
  bool takes_sparse_gradients() const override {
    return state_names_.empty() && options_.weight_decay == 0;
  }
  double lr() const override { return options_.lr; }
  void set_lr(double lr) override { options_.lr = lr; }
  double momentum() const override { return options_.momentum; }
  void set_momentum(double momentum) override {
    if (state_names_.empty()) {
      throw ConfigError(
          "SGD: the momentum of an optimizer without one cannot be set; make it with a momentum "
          "above 0");
    }
    OptionCheck("SGD").in_range("momentum", momentum, 0, 1);
    options_.momentum = momentum;
  }

  // Momentum starts as zero, so the first step needs no special case.
  void update(const Tensors& parameters, const Tensors& gradients,
              const std::vector<Tensors>& states, std::int64_t /*step*/) override {
    update_by(options_.lr, {}, parameters, gradients, states);
  }
  void update(const Tensors& parameters, const Tensors& gradients,
              const std::vector<Tensors>& states, const detail::DeviceStep& step) override {
    update_by(step.lr, found_inf_of(step), parameters, gradients, states);
  }

 private:
  // `lr` is a number or a tensor.
  template <class Rate>
  void update_by(const Rate& lr, const std::optional<torch::Tensor>& found_inf,
                 const Tensors& parameters, const Tensors& gradients,
                 const std::vector<Tensors>& states) const {
    const torch::NoGradGuard no_grad;
    call_for_each_kind(parameters, gradients, states,
                       [&](const Tensors& w, const Tensors& g, const std::vector<Tensors>& s) {
                         const at::TensorList v = s.empty() ? at::TensorList() : s[0];
                         if (w[0].is_cpu() && w[0].element_size() == 2) {
                           if (found_inf && found_inf->template item<float>() == 1) return;
                           return compose(w, g, v, number_of(lr));
                         }
                         at::_fused_sgd_(w, g, v, options_.weight_decay, options_.momentum, lr,
                                         /*dampening=*/0.0, options_.nesterov, /*maximize=*/false,
                                         /*is_first_step=*/false, /*grad_scale=*/std::nullopt,
                                         found_inf);
                       });
  }

  static double number_of(double lr) { return lr; }
  static double number_of(const torch::Tensor& lr) { return lr.item<double>(); }

  // LibTorch's fused kernel leaves whole vectors of 16-bit tensors as they were on the CPU, up
  // to 2.13 (pytorch#191763). These are the operations of torch.optim's foreach implementation.
  void compose(at::TensorList w, at::TensorList g, at::TensorList v, double lr) const {
    Tensors direction = g.vec();
    if (options_.weight_decay != 0) {
      direction = at::_foreach_add(direction, w, options_.weight_decay);
    }
    if (!v.empty()) {
      at::_foreach_mul_(v, options_.momentum);
      at::_foreach_add_(v, direction);
      direction = options_.nesterov ? at::_foreach_add(direction, v, options_.momentum) : v.vec();
    }
    at::_foreach_add_(w, direction, -lr);
  }

  const std::string name_ = "sgd";
  SgdOptions options_;
  std::vector<std::string> state_names_;
};

}  // namespace

std::unique_ptr<detail::UpdateRule> make_sgd_rule(const SgdOptions& options) {
  return std::make_unique<SgdRule>(options);
}

}  // namespace lockstep::optim
