// The options of `lockstep bench step`, and the settings that follow from them in its first mode.
// For the second mode, see strategies_settings.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <lockstep/bench/step/settings.h>

namespace CLI {
class App;
}

namespace lockstep::cli {

inline constexpr const char* kBenchStep = "bench step";  ///< begins error messages in both modes

/// The options of both modes, as given by the user.
struct BenchStepArguments {
  std::string model = "mnist";
  std::string strategy = "ddp";
  std::string backend = "auto";
  std::optional<int> nproc_per_node;
  std::optional<int> batch_per_rank;  ///< absent: 64 for mnist, 8 for resnet18
  std::optional<int> threads;         ///< absent: 1 per rank
  std::string precision = "32";
  std::string optimizer = "sgd";
  std::optional<std::string> bucket_cap_mb;     ///< absent: 25
  std::optional<std::string> parameter_memory;  ///< absent: auto
  bool find_unused_parameters = false;
  bool set_to_none = false;
  bool alone = false;
  std::optional<int> rounds;  ///< absent: 21
  std::optional<int> steps;
  std::optional<std::string> json;
  std::optional<std::string> trace;
  double timeout_seconds = 60;

  // Only for --strategy all or a strategy other than ddp and zero1:
  std::optional<int> batch;
  std::optional<int> micro_batches;
  bool recompute = false;
  std::optional<int> image_size;
  std::optional<std::string> cut;
  std::optional<std::string> only;

  bool operator==(const BenchStepArguments&) const = default;
};

/// Adds all options to `command`; parsing writes them into `to`, which must outlive it.
void add_bench_step_options(CLI::App& command, BenchStepArguments& to);

/// The strategies that are compared in one set of ranks.
const std::vector<std::string>& step_strategy_names();
/// Words for the values of --strategy that select the second mode, in help and messages.
std::string strategies_of_own_processes();
/// The networks that the first mode trains.
const std::vector<std::string>& step_model_names();
const std::vector<std::string>& parameter_memory_names();
/// The precisions in which both modes compute, on CPUs.
const std::vector<std::string>& step_precision_names();

/// Checks everything that can be checked before a rank exists. Throws ConfigError, which names the
/// option, if a value is invalid or the option belongs to the other mode.
bench::BenchStepSettings resolve(const BenchStepArguments& arguments);

/// Checks the options that both modes have and stores them in `settings`; `default_rounds` applies
/// without --rounds. Throws ConfigError, which names the option. Does not check whether the --json
/// file can be written: only the process that writes it does (check_output_file()).
void resolve_common(const BenchStepArguments& arguments, int default_rounds,
                    bench::CommonStepSettings& settings);

/// If an option was `given`, throws a ConfigError with `text` after the command's name.
void refuse_step_option(bool given, const std::string& text);

}  // namespace lockstep::cli
