#include <lockstep/cli/train/train_checkpoints.h>

#include <lockstep/cli/option_checks.h>
#include <lockstep/cli/train/watched_value.h>
#include <lockstep/core/error.h>
#include <lockstep/core/options.h>

namespace lockstep::cli {
namespace {

bool any_is_given(const CheckpointArguments& arguments) {
  return arguments.every_n_train_steps || arguments.keep_checkpoints || arguments.save_top_k ||
         arguments.in_background;
}

}  // namespace

void add_checkpoint_options(CLI::App& command, CheckpointArguments& to) {
  const auto add_number = [&](const char* name, std::optional<std::int64_t>& number,
                              const char* help) {
    command.add_option(name, number, help)->transform(whole_number<std::int64_t>());
  };
  add_number(
      "--every-n-train-steps", to.every_n_train_steps,
      "Number of optimizer steps from one additional checkpoint to the next (default: none, only "
      "at the end of each epoch)");
  add_number("--keep-checkpoints", to.keep_checkpoints,
             "Number of newest checkpoints to keep (default 2; with 1 there is no older one to "
             "fall back to)");
  command.add_option("--save-top-k", to.save_top_k,
                     "METRIC:K[:GOAL], such as loss:1 or accuracy:3:max: in addition to the newest "
                     "checkpoints, keep the K best by this metric; GOAL is min or max, and may be "
                     "left out for losses");
  command.add_flag("--background-checkpoints", to.in_background,
                   "Write checkpoints in the background while training continues; takes the memory "
                   "of one checkpoint");
}

CheckpointOptions resolve_checkpoints(const CheckpointArguments& arguments,
                                      const std::filesystem::path& out) {
  CheckpointOptions options;
  if (out.empty()) {
    if (!any_is_given(arguments)) return options;
    throw ConfigError(
        "train: --every-n-train-steps, --keep-checkpoints, --save-top-k and "
        "--background-checkpoints need --out DIR, where checkpoints are kept");
  }
  options.directory = out / kCheckpointsFolder;
  options.link = out / kWeightsLink;
  const OptionCheck check("train");
  if (arguments.every_n_train_steps) {
    options.every_n_train_steps = *arguments.every_n_train_steps;
    check.at_least("--every-n-train-steps", static_cast<double>(options.every_n_train_steps), 1);
  }
  if (arguments.keep_checkpoints) {
    options.keep_last = *arguments.keep_checkpoints;
    check.in_range("--keep-checkpoints", static_cast<double>(options.keep_last), 1, 1e6);
  }
  if (arguments.save_top_k) {
    const WatchedValue best = parse_watched_value("--save-top-k", *arguments.save_top_k, "K");
    check.in_range("the K of --save-top-k", static_cast<double>(best.number), 1, 1e6);
    options.monitor = best.metric;
    options.save_top_k = best.number;
    options.mode = best.goal;
  }
  options.background = arguments.in_background;
  return options;
}

}  // namespace lockstep::cli
