// Options of `lockstep train` for the optimizer.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>

#include <lockstep/optim/options.h>

namespace lockstep::cli {

/// The options as given by the user; absent: the recipe's default.
struct OptimizerArguments {
  std::optional<std::string> name;
  std::optional<double> lr;
  std::optional<double> weight_decay;
  std::optional<double> momentum;
  bool nesterov = false;
  std::optional<std::pair<double, double>> betas;
  std::optional<double> eps;
  bool amsgrad = false;

  bool operator==(const OptimizerArguments&) const = default;
};

/// Adds the options to `command`; parsing writes them into `to`.
void add_optimizer_options(CLI::App& command, OptimizerArguments& to);

/// The recipe's optimizer, or another one with PyTorch's defaults, modified by the options. Throws
/// ConfigError, which names the option.
OptimizerOptions resolve_optimizer(const OptimizerArguments& arguments,
                                   const OptimizerOptions& of_recipe);

}  // namespace lockstep::cli
