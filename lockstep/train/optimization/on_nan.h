// What a run does when a loss is not finite.
#pragma once

#include <string>
#include <vector>

#include <lockstep/core/export.h>

namespace lockstep {

/// The policy for a step whose loss is NaN or infinite on any rank. A diverged run trains in vain:
/// its parameters become NaN, too.
enum class OnNan {
  /// Warn at the first such step, and train on. Each rank looks at its own loss only.
  kWarn,
  /// Trainer::fit() throws an Error that names the step, on all ranks, before the step changes the
  /// parameters. Also for a gradient that is not finite, except with Precision::kFp16, whose loss
  /// scaling produces such gradients.
  kStop,
  /// Leave out the update of such steps: parameters, the optimizer's state and buffers stay as they
  /// were, and the epoch's train_loss does not contain the step. The schedule counts it. The same
  /// gradients as with kStop cause it.
  kSkip,
};

/// "warn", "stop", "skip".
LOCKSTEP_API const std::vector<std::string>& on_nan_names();
LOCKSTEP_API std::string to_string(OnNan policy);
/// The inverse of to_string(). Throws ConfigError if `name` is not one of on_nan_names().
LOCKSTEP_API OnNan parse_on_nan(const std::string& name);

}  // namespace lockstep
