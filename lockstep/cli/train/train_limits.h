// Options of `lockstep train` for the length of a run, how much of its data it uses, evaluations,
// and monitoring.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include <lockstep/train/trainer.h>

namespace lockstep::cli {

/// The options as given by the user; absent: the Trainer's default.
struct LimitArguments {
  std::optional<std::int64_t> min_epochs;
  std::optional<std::int64_t> max_steps;
  std::optional<std::string> max_time;
  std::optional<std::string> early_stopping;
  std::optional<std::int64_t> fast_dev_run;
  std::optional<std::int64_t> limit_train_batches;
  std::optional<std::int64_t> overfit_batches;
  std::optional<std::int64_t> limit_val_batches;
  std::optional<std::int64_t> check_val_every_n_epoch;
  std::optional<std::int64_t> val_check_interval;
  std::optional<std::int64_t> num_sanity_val_steps;
  std::optional<std::int64_t> log_every_n_steps;
  std::optional<double> ema_decay;
  std::optional<double> gradient_clip_norm;
  std::optional<double> gradient_clip_val;
  std::optional<std::string> gradient_clip_algorithm;
  std::string on_nan = "warn";
  bool deterministic = false;
  bool detect_anomaly = false;
  int model_summary = 0;
  std::optional<std::int64_t> log_histograms_every_n_steps;
  std::string profiler = "none";
  bool trace = false;
  std::optional<std::int64_t> trace_steps;

  bool operator==(const LimitArguments&) const = default;
};

/// Each function adds the options of one group of --help to `command`; parsing writes them into
/// `to`.
void add_limit_options(CLI::App& command, LimitArguments& to);
void add_evaluation_options(CLI::App& command, LimitArguments& to);
void add_gradient_options(CLI::App& command, LimitArguments& to);
void add_determinism_options(CLI::App& command, LimitArguments& to);
void add_report_options(CLI::App& command, LimitArguments& to);

/// Name of the trace file in --out.
inline constexpr const char* kTraceFile = "trace.json";

/// Checks the options and sets the corresponding members of `options`, and `options.trace.file` to
/// kTraceFile. `options.max_epochs` must already be set. Throws ConfigError, which names the
/// option.
void resolve_limits(const LimitArguments& arguments, TrainerOptions& options);

/// Parses "90", "1:30" or "1:02:03:04" (days, hours, minutes, seconds) to seconds. Throws
/// ConfigError for other text.
double parse_max_time(const std::string& text);

}  // namespace lockstep::cli
