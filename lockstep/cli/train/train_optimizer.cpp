#include <lockstep/cli/train/train_optimizer.h>

#include <variant>

#include <lockstep/cli/help_format.h>
#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/core/strings.h>
#include <lockstep/optim/update_rule.h>

namespace lockstep::cli {
namespace {

void apply(const OptimizerArguments& arguments, SgdOptions& sgd) {
  if (arguments.betas || arguments.eps || arguments.amsgrad) {
    throw ConfigError("train: --betas, --eps and --amsgrad belong to --optimizer adam and adamw");
  }
  sgd.momentum = arguments.momentum.value_or(sgd.momentum);
  sgd.nesterov = sgd.nesterov || arguments.nesterov;
  OptionCheck("train").in_range("--momentum", sgd.momentum, 0, 1);
}

// Applies the options of Adam and AdamW.
template <class Adam>
void apply(const OptimizerArguments& arguments, Adam& adam) {
  if (arguments.momentum || arguments.nesterov) {
    throw ConfigError("train: --momentum and --nesterov belong to --optimizer sgd");
  }
  if (arguments.betas) {
    adam.beta1 = arguments.betas->first;
    adam.beta2 = arguments.betas->second;
  }
  adam.eps = arguments.eps.value_or(adam.eps);
  adam.amsgrad = adam.amsgrad || arguments.amsgrad;
  const OptionCheck check("train");
  check.in_range("--betas", adam.beta1, 0, 1);
  check.in_range("--betas", adam.beta2, 0, 1);
  check.in_range("--eps", adam.eps, 0, 1e6);
}

// The recipe's optimizer, or another with PyTorch's defaults.
OptimizerOptions choose_optimizer(const std::optional<std::string>& name,
                                  const OptimizerOptions& of_recipe) {
  if (!name) return of_recipe;
  OptionCheck("train").one_of("--optimizer", *name, optimizer_names());
  const OptimizerOptions chosen = default_optimizer(*name);
  return chosen.index() == of_recipe.index() ? of_recipe : chosen;
}

}  // namespace

void add_optimizer_options(CLI::App& command, OptimizerArguments& to) {
  const HelpGroup group(command, "Optimizer");
  command.add_option(
      "--optimizer", to.name,
      "Optimizer: " + join(optimizer_names()) +
          " (default: the recipe's; any other optimizer starts with PyTorch's defaults)");
  command.add_option("--lr", to.lr, "Learning rate (default: the recipe's)");
  command.add_option("--weight-decay", to.weight_decay,
                     "Weight decay: L2 penalty, or decoupled weight decay with adamw (default: the "
                     "recipe's)");
  command.add_option("--momentum", to.momentum,
                     "Momentum factor (sgd only, default: the recipe's)");
  command.add_flag("--nesterov", to.nesterov,
                   "Use Nesterov's momentum (sgd only, default: the recipe's choice)");
  command
      .add_option("--betas", to.betas,
                  "Decay rates of the two moment estimates (adam and adamw only, default: the "
                  "recipe's)")
      ->type_name("FLOAT FLOAT");
  command.add_option("--eps", to.eps,
                     "Term added to the denominator (adam and adamw only, default: the recipe's)");
  command.add_flag("--amsgrad", to.amsgrad, "Use the AMSGrad variant (adam and adamw only)");
}

OptimizerOptions resolve_optimizer(const OptimizerArguments& arguments,
                                   const OptimizerOptions& of_recipe) {
  OptimizerOptions chosen = choose_optimizer(arguments.name, of_recipe);
  std::visit(
      [&](auto& options) {
        options.lr = arguments.lr.value_or(options.lr);
        options.weight_decay = arguments.weight_decay.value_or(options.weight_decay);
        const OptionCheck check("train");
        check.in_range("--lr", options.lr, 0, 1e6);
        check.in_range("--weight-decay", options.weight_decay, 0, 1e6);
        apply(arguments, options);
      },
      chosen);
  detail::make_update_rule(chosen);  // checks the remaining values before there are ranks
  return chosen;
}

}  // namespace lockstep::cli
