#include <lockstep/cli/train/train_limits.h>

#include <charconv>
#include <cstdint>
#include <iterator>
#include <vector>

#include <lockstep/bench/word_list.h>
#include <lockstep/cli/help_format.h>
#include <lockstep/cli/option_checks.h>
#include <lockstep/cli/train/watched_value.h>
#include <lockstep/core/error.h>
#include <lockstep/core/options.h>

namespace lockstep::cli {
namespace {

using OptionalCount = std::optional<std::int64_t>;

void add_count(CLI::App& command, const char* name, OptionalCount& to, const char* help) {
  command.add_option(name, to, help)->transform(whole_number<std::int64_t>());
}

// Adds an option that Lightning also takes as a share.
void add_batches(CLI::App& command, const char* name, OptionalCount& to, const char* help) {
  const CLI::Validator not_a_share(
      [](std::string& text) {
        const bool is_share = text.find('.') != std::string::npos;
        return is_share ? "must be a number of batches, not a share of them, got '" + text + "'"
                        : std::string();
      },
      "");
  // The validator that is added last runs first.
  command.add_option(name, to, help)
      ->transform(whole_number<std::int64_t>())
      ->transform(not_a_share);
}

// Sets `to` if the option was given; the minimum is `least`.
void take_count(const OptionalCount& given, const char* name, double least, std::int64_t& to) {
  if (!given) return;
  OptionCheck("train").at_least(name, static_cast<double>(*given), least);
  to = *given;
}
void take_count(const OptionalCount& given, const char* name, double least, OptionalCount& to) {
  if (!given) return;
  OptionCheck("train").at_least(name, static_cast<double>(*given), least);
  to = *given;
}

void resolve_clipping(const LimitArguments& arguments, TrainerOptions& options) {
  const OptionCheck check("train");
  options.gradient_clip_norm = arguments.gradient_clip_norm;
  if (options.gradient_clip_norm) {
    check.positive("--gradient-clip-norm", *options.gradient_clip_norm);
  }
  if (arguments.gradient_clip_algorithm) {
    check.one_of("--gradient-clip-algorithm", *arguments.gradient_clip_algorithm,
                 {"norm", "value"});
    if (!arguments.gradient_clip_val) {
      throw ConfigError("train: --gradient-clip-algorithm belongs to --gradient-clip-val");
    }
  }
  if (!arguments.gradient_clip_val) return;
  check.positive("--gradient-clip-val", *arguments.gradient_clip_val);
  if (arguments.gradient_clip_algorithm == "value") {
    options.gradient_clip_value = arguments.gradient_clip_val;
    return;
  }
  if (arguments.gradient_clip_norm) {
    throw ConfigError(
        "train: --gradient-clip-norm and --gradient-clip-val cannot be combined, unless "
        "--gradient-clip-algorithm is value");
  }
  options.gradient_clip_norm = arguments.gradient_clip_val;
}

void resolve_length(const LimitArguments& arguments, TrainerOptions& options) {
  const OptionCheck check("train");
  if (arguments.min_epochs) {
    options.min_epochs = *arguments.min_epochs;
    check.in_range("--min-epochs", static_cast<double>(options.min_epochs), 0,
                   static_cast<double>(options.max_epochs));
  }
  take_count(arguments.max_steps, "--max-steps", 1, options.max_steps);
  if (arguments.max_time) options.max_time_seconds = parse_max_time(*arguments.max_time);
  if (arguments.early_stopping) {
    const WatchedValue watched = parse_watched_value("--early-stopping", *arguments.early_stopping);
    check.at_least("the patience of --early-stopping", static_cast<double>(watched.number), 1);
    options.early_stopping = EarlyStoppingOptions{
        .monitor = watched.metric, .mode = watched.goal, .patience = watched.number};
  }
}

void resolve_reports(const LimitArguments& arguments, TrainerOptions& options) {
  const OptionCheck check("train");
  check.at_least("--model-summary", arguments.model_summary, -1);
  options.model_summary_depth = arguments.model_summary;
  take_count(arguments.log_histograms_every_n_steps, "--log-histograms-every-n-steps", 1,
             options.log_histograms_every_n_steps);
  check.one_of("--profiler", arguments.profiler, profiler_names());
  options.profiler.kind = parse_profiler(arguments.profiler);
  if (arguments.trace_steps && !arguments.trace && options.profiler.kind != Profiler::kTrace) {
    throw ConfigError("train: --trace-steps belongs to --trace and --profiler trace");
  }
  take_count(arguments.trace_steps, "--trace-steps", 1, options.profiler.trace_steps);
  if (!arguments.trace) return;
  take_count(arguments.trace_steps, "--trace-steps", 1, options.trace.steps);
  check.in_range("--trace-steps", static_cast<double>(options.trace.steps), 1, 100);
  options.trace.file = kTraceFile;
}

}  // namespace

void add_limit_options(CLI::App& command, LimitArguments& to) {
  const HelpGroup group(command, "Length of the run");
  add_count(command, "--min-epochs", to.min_epochs,
            "Minimum number of epochs, even if --max-time or --early-stopping would end the run "
            "earlier (default 0)");
  add_count(command, "--max-steps", to.max_steps,
            "End the run after this number of optimizer steps; the learning rate's schedule still "
            "spans --max-epochs");
  command.add_option("--max-time", to.max_time,
                     "End the run after this time: seconds, MM:SS, HH:MM:SS or DD:HH:MM:SS");
  command.add_option(
      "--early-stopping", to.early_stopping,
      "METRIC:PATIENCE[:GOAL], such as loss:3 or accuracy:3:max: end the run when "
      "the metric has not improved for PATIENCE evaluations; GOAL is min or max, and "
      "may be left out for losses");
  add_count(command, "--fast-dev-run", to.fast_dev_run,
            "Run a quick test: train and evaluate on this number of batches per rank, and write no "
            "checkpoint");
  add_batches(command, "--limit-train-batches", to.limit_train_batches,
              "Maximum number of batches per rank and epoch");
  add_batches(command, "--overfit-batches", to.overfit_batches,
              "Train on this number of batches per rank, identical in every epoch");
}

void add_evaluation_options(CLI::App& command, LimitArguments& to) {
  const HelpGroup group(command, "Evaluation");
  add_batches(command, "--limit-test-batches,--limit-val-batches", to.limit_val_batches,
              "Maximum number of batches per rank to evaluate on; 0 turns evaluation off");
  add_count(
      command, "--check-val-every-n-epoch", to.check_val_every_n_epoch,
      "Number of epochs from one evaluation to the next (default 1); the last epoch is always "
      "evaluated");
  add_batches(command, "--val-check-interval", to.val_check_interval,
              "Also evaluate within an epoch, whenever each rank has trained on this number of "
              "batches (default: only at the end of an epoch)");
  add_count(command, "--num-sanity-val-steps", to.num_sanity_val_steps,
            "Number of batches that each rank evaluates before the first step, so that errors in "
            "the evaluation show early (default 0)");
  command.add_option("--ema-decay", to.ema_decay,
                     "Evaluate an exponential moving average of the weights with this decay, such "
                     "as 0.999");
}

void add_gradient_options(CLI::App& command, LimitArguments& to) {
  const HelpGroup group(command, "Optimizer");
  command.add_option("--gradient-clip-norm", to.gradient_clip_norm,
                     "Maximum norm of all gradients together; if it is larger, all gradients are "
                     "scaled down");
  command.add_option("--gradient-clip-val", to.gradient_clip_val,
                     "Limit for the gradients' norm or values; --gradient-clip-algorithm selects "
                     "which");
  command.add_option("--gradient-clip-algorithm", to.gradient_clip_algorithm,
                     "What --gradient-clip-val limits: norm (of all gradients together) or value "
                     "(of each element); default norm");
  command
      .add_option("--on-nan", to.on_nan,
                  "What follows if a loss is NaN or infinite: warn (and train on), stop (before "
                  "the step changes the weights) or skip (the update of the step); stop and skip "
                  "also look at the gradients")
      ->capture_default_str();
}

void add_determinism_options(CLI::App& command, LimitArguments& to) {
  const HelpGroup group(command, "Computation");
  command.add_flag("--deterministic", to.deterministic,
                   "Use deterministic operations, and end the run at one that has no deterministic "
                   "implementation");
  command.add_flag("--detect-anomaly", to.detect_anomaly,
                   "End the run when a backward pass produces NaN, and name the operation (slow)");
}

void add_report_options(CLI::App& command, LimitArguments& to) {
  const HelpGroup group(command, "Logs and reports");
  add_count(command, "--log-every-n-steps", to.log_every_n_steps,
            "Number of steps from one report to the next (default 1); the last step of an epoch is "
            "always reported");
  command
      .add_option("--model-summary", to.model_summary,
                  "Before training, show the model's modules with their parameters and output "
                  "shapes, to this depth: 1 for direct children only, -1 for all (default: off)")
      ->transform(whole_number<int>());
  add_count(command, "--log-histograms-every-n-steps", to.log_histograms_every_n_steps,
            "Steps between histograms of each parameter and its gradient (--logger only, default: "
            "no histograms)");
  command
      .add_option(
          "--profiler", to.profiler,
          "Profiler: simple (shows the time of each part of the run in a table at its end, and in "
          "--json) or trace (also records LibTorch's operations in some steps, in "
          "operations.json in --out)")
      ->capture_default_str();
  command.add_flag(
      "--trace", to.trace,
      "Record what all threads of all ranks do in the last steps, in trace.json in "
      "--out, with the times of all ranks on one clock; https://ui.perfetto.dev opens the file");
  add_count(command, "--trace-steps", to.trace_steps,
            "Number of optimizer steps to record: --trace records the last ones (default 10), "
            "--profiler trace begins at the second step (default 5)");
}

void resolve_limits(const LimitArguments& arguments, TrainerOptions& options) {
  resolve_length(arguments, options);
  take_count(arguments.fast_dev_run, "--fast-dev-run", 1, options.fast_dev_run);
  take_count(arguments.limit_train_batches, "--limit-train-batches", 1,
             options.limit_train_batches);
  take_count(arguments.overfit_batches, "--overfit-batches", 1, options.overfit_batches);
  take_count(arguments.limit_val_batches, "--limit-test-batches", 0, options.limit_val_batches);
  take_count(arguments.check_val_every_n_epoch, "--check-val-every-n-epoch", 1,
             options.check_val_every_n_epoch);
  take_count(arguments.val_check_interval, "--val-check-interval", 1, options.val_check_interval);
  take_count(arguments.num_sanity_val_steps, "--num-sanity-val-steps", 0,
             options.num_sanity_val_steps);
  take_count(arguments.log_every_n_steps, "--log-every-n-steps", 1, options.log_every_n_steps);
  resolve_clipping(arguments, options);
  OptionCheck("train").one_of("--on-nan", arguments.on_nan, on_nan_names());
  options.on_nan = parse_on_nan(arguments.on_nan);
  options.ema_decay = arguments.ema_decay;
  if (options.ema_decay) OptionCheck("train").in_range("--ema-decay", *options.ema_decay, 0, 1);
  options.deterministic = arguments.deterministic;
  options.detect_anomaly = arguments.detect_anomaly;
  resolve_reports(arguments, options);
}

double parse_max_time(const std::string& text) {
  constexpr double kSecondsOf[] = {1, 60, 3600, 86400};
  const std::vector<std::string> parts = bench::words_of(text, ':');
  double seconds = 0;
  bool fits = parts.size() <= std::size(kSecondsOf);
  for (std::size_t i = 0; fits && i < parts.size(); ++i) {
    const std::string& part = parts[parts.size() - 1 - i];
    std::uint32_t number = 0;
    const char* const end = part.data() + part.size();
    const auto [stop, error] = std::from_chars(part.data(), end, number);
    fits = error == std::errc() && stop == end;
    seconds += number * kSecondsOf[i];
  }
  if (fits && seconds > 0) return seconds;
  throw ConfigError(lockstep::str(
      "train: --max-time must be seconds, MM:SS, HH:MM:SS or DD:HH:MM:SS, above 0, got '", text,
      "'"));
}

}  // namespace lockstep::cli
