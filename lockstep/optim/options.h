// The options of the optimizers; names and defaults are those of torch.optim.
#pragma once

#include <map>
#include <string>
#include <variant>
#include <vector>

#include <lockstep/core/export.h>

namespace lockstep {

struct LOCKSTEP_API SgdOptions {
  double lr = 0.01;
  double momentum = 0;
  double weight_decay = 0;  ///< L2 penalty added to the gradient, not decoupled
  bool nesterov = false;    ///< requires momentum
};

struct LOCKSTEP_API AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;  ///< L2 penalty added to the gradient, not decoupled
  bool amsgrad = false;
};

struct LOCKSTEP_API AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;  ///< decoupled: shrinks the parameter by lr * weight_decay
  bool amsgrad = false;
};

using OptimizerOptions = std::variant<SgdOptions, AdamOptions, AdamWOptions>;

/// "sgd", "adam", "adamw".
LOCKSTEP_API const std::vector<std::string>& optimizer_names();

/// Returns the options of the optimizer `name` with PyTorch's defaults. Throws ConfigError for an
/// unknown name.
LOCKSTEP_API OptimizerOptions default_optimizer(const std::string& name);

/// Whether a schedule can change the momentum, which for Adam and AdamW is beta1. False if SGD's
/// momentum is 0, because the optimizer then keeps no buffer for it.
LOCKSTEP_API bool has_momentum(const OptimizerOptions& options);

/// Text that keeps all bits of `value`: equal bits give equal texts.
LOCKSTEP_API std::string exact_text(double value);
/// The options as exact text by name: {"optimizer", "sgd"}, {"lr", "0.1"}, ...
LOCKSTEP_API std::map<std::string, std::string> to_settings(const OptimizerOptions& options);

}  // namespace lockstep
