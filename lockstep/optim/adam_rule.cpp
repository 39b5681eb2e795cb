#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>

#include <optional>
#include <type_traits>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/optim/rules.h>

namespace lockstep::optim {
namespace {

// Adam (Kingma and Ba, 2015, algorithm 1) and AdamW (Loshchilov and Hutter, 2019, algorithm 2),
// with AMSGrad (Reddi et al., 2018). They differ only in weight decay.
template <class Options>
class AdamRule final : public detail::UpdateRule {
 public:
  static constexpr bool kDecoupled = std::is_same_v<Options, AdamWOptions>;

  explicit AdamRule(const Options& options) : options_(options) {
    const OptionCheck check(kDecoupled ? "AdamW" : "Adam");
    check.at_least("lr", options.lr, 0);
    check.at_least("eps", options.eps, 0);
    check.at_least("weight_decay", options.weight_decay, 0);
    require_beta("beta1", options.beta1);
    require_beta("beta2", options.beta2);
    if (options.amsgrad) state_names_.emplace_back("max_exp_avg_sq");
  }

  const std::string& name() const override { return name_; }
  const std::vector<std::string>& state_names() const override { return state_names_; }
  double lr() const override { return options_.lr; }
  void set_lr(double lr) override { options_.lr = lr; }
  double momentum() const override { return options_.beta1; }
  void set_momentum(double momentum) override {
    require_beta("beta1", momentum);
    options_.beta1 = momentum;
  }

  void update(const Tensors& parameters, const Tensors& gradients,
              const std::vector<Tensors>& states, std::int64_t step) override {
    const auto number = [step](const torch::Tensor& parameter) {
      return torch::scalar_tensor(step, parameter.options().dtype(torch::kFloat32));
    };
    update_by(options_.lr, number, {}, parameters, gradients, states);
  }

  void update(const Tensors& parameters, const Tensors& gradients,
              const std::vector<Tensors>& states, const detail::DeviceStep& step) override {
    const auto number = [&step](const torch::Tensor&) { return step.number; };
    update_by(step.lr, number, found_inf_of(step), parameters, gradients, states);
  }

 private:
  // `lr` is a number or a tensor; `number_for` returns the step number for a parameter's device.
  template <class Rate, class NumberFor>
  void update_by(const Rate& lr, const NumberFor& number_for,
                 const std::optional<torch::Tensor>& found_inf, const Tensors& parameters,
                 const Tensors& gradients, const std::vector<Tensors>& states) const {
    const torch::NoGradGuard no_grad;
    call_for_each_kind(parameters, gradients, states,
                       [&](const Tensors& w, const Tensors& g, const std::vector<Tensors>& s) {
                         const Tensors steps(w.size(), number_for(w[0]));
                         const at::TensorList maxima = options_.amsgrad ? s[2] : at::TensorList();
                         const auto kernel = [&](auto fused) {
                           fused(w, g, s[0], s[1], maxima, steps, lr, options_.beta1,
                                 options_.beta2, options_.weight_decay, options_.eps,
                                 options_.amsgrad, /*maximize=*/false,
                                 /*grad_scale=*/std::nullopt, found_inf);
                         };
                         if constexpr (kDecoupled) {
                           kernel([](auto&&... arguments) { at::_fused_adamw_(arguments...); });
                         } else {
                           kernel([](auto&&... arguments) { at::_fused_adam_(arguments...); });
                         }
                       });
  }

  static void require_beta(const char* name, double beta) {
    OptionCheck(kDecoupled ? "AdamW" : "Adam").in_range(name, beta, 0, 1);
    // The bias correction divides by 1 - beta^step.
    if (beta < 1) return;
    throw ConfigError(
        lockstep::str(kDecoupled ? "AdamW: " : "Adam: ", name, " must be below 1, got 1"));
  }

  const std::string name_ = kDecoupled ? "adamw" : "adam";
  Options options_;
  std::vector<std::string> state_names_ = {"exp_avg", "exp_avg_sq"};
};

}  // namespace

std::unique_ptr<detail::UpdateRule> make_adam_rule(const AdamOptions& options) {
  return std::make_unique<AdamRule<AdamOptions>>(options);
}

std::unique_ptr<detail::UpdateRule> make_adamw_rule(const AdamWOptions& options) {
  return std::make_unique<AdamRule<AdamWOptions>>(options);
}

}  // namespace lockstep::optim
