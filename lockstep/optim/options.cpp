#include <lockstep/optim/options.h>

#include <array>
#include <charconv>

#include <lockstep/core/options.h>

namespace lockstep {
namespace {

std::string exact(double value) { return exact_text(value); }
std::string exact(bool value) { return value ? "true" : "false"; }

using Settings = std::map<std::string, std::string>;

template <class Adam>
Settings adam_settings(const char* name, const Adam& options) {
  return {{"optimizer", name},
          {"lr", exact(options.lr)},
          {"betas", exact(options.beta1) + " " + exact(options.beta2)},
          {"eps", exact(options.eps)},
          {"weight_decay", exact(options.weight_decay)},
          {"amsgrad", exact(options.amsgrad)}};
}

struct ToSettings {
  Settings operator()(const SgdOptions& options) const {
    return {{"optimizer", "sgd"},
            {"lr", exact(options.lr)},
            {"momentum", exact(options.momentum)},
            {"weight_decay", exact(options.weight_decay)},
            {"nesterov", exact(options.nesterov)}};
  }
  Settings operator()(const AdamOptions& options) const { return adam_settings("adam", options); }
  Settings operator()(const AdamWOptions& options) const { return adam_settings("adamw", options); }
};

const detail::NamedValues<OptimizerOptions>& named_optimizers() {
  static const detail::NamedValues<OptimizerOptions> all = {
      {"sgd", SgdOptions{}}, {"adam", AdamOptions{}}, {"adamw", AdamWOptions{}}};
  return all;
}

}  // namespace

std::string exact_text(double value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

const std::vector<std::string>& optimizer_names() { return named_optimizers().names(); }

OptimizerOptions default_optimizer(const std::string& name) {
  return named_optimizers().value_of("Optimizer", "name", name);
}

bool has_momentum(const OptimizerOptions& options) {
  return std::visit(
      [](const auto& each) {
        if constexpr (requires { each.momentum; }) {
          return each.momentum > 0;
        } else {
          return requires { each.beta1; };
        }
      },
      options);
}

std::map<std::string, std::string> to_settings(const OptimizerOptions& options) {
  return std::visit(ToSettings{}, options);
}

}  // namespace lockstep
