#include <lockstep/train/checkpoints/checkpoint_options.h>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>

namespace lockstep {

void validate(const CheckpointOptions& options) {
  const OptionCheck check("checkpoints");
  check.at_least("every_n_train_steps", static_cast<double>(options.every_n_train_steps), 0);
  check.in_range("keep_last", static_cast<double>(options.keep_last), 1, 1e6);
  check.in_range("save_top_k", static_cast<double>(options.save_top_k), 0, 1e6);
  if (options.save_top_k > 0 && options.monitor.empty()) {
    throw ConfigError(
        "checkpoints: save_top_k needs a monitor, the value that tells which are best");
  }
}

}  // namespace lockstep
