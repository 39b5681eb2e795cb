// The options of `lockstep bench step`: as the user gave them, and checked.
//
// The command has two modes. The first times ddp and zero1 in one set of ranks; its settings are in
// this file. The second, which --strategy all selects, times each strategy in processes of its own;
// its settings are in bench/strategies/settings.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/comm/rendezvous/worker_environment.h>

namespace lockstep {

inline constexpr const char* kBenchStep = "bench step";  ///< begins error messages in both modes

/// The options as the user gave them, for both modes.
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

  // Only for --strategy all:
  std::optional<int> batch;
  std::optional<int> micro_batches;
  bool recompute = false;
  std::optional<int> image_size;
  std::optional<std::string> cut;
  std::optional<std::string> only;
};

/// The strategies that are compared in one set of ranks.
const std::vector<std::string>& step_strategy_names();
/// The precisions in which both modes compute, on CPUs.
const std::vector<std::string>& step_precision_names();

/// Settings that both modes have, with the same permitted values.
struct CommonStepSettings {
  std::string backend;    ///< of the group of ranks
  std::string precision;  ///< "32" or "bf16"
  std::string optimizer;  ///< "sgd", "adam" or "adamw"
  int rounds = 0;
  /// Timed steps per row and round. 0: as many as take 0.2 s, from 1 to 50; with --strategy all as
  /// many as take 1 s, from 3 to 1000.
  std::int64_t steps = 0;
  std::filesystem::path json;
  std::filesystem::path trace{};  ///< folder for one trace per row; empty: no traces
  std::chrono::milliseconds timeout{};
};

/// A strategy with its options, which all ranks run together: one row of the result.
struct StepVariant {
  std::string strategy;
  /// Absent: one bucket for all gradients, reduced after the backward pass.
  std::optional<double> bucket_cap_mb;
  /// "as-is", "flat", "shared", or "auto", which means as-is for ddp. For zero1 it means shared if
  /// all ranks are on one host, otherwise flat.
  std::string parameter_memory;
  bool find_unused_parameters = false;
};

struct BenchStepSettings : CommonStepSettings {
  std::string model;
  std::vector<StepVariant> variants;
  /// This rank's environment if a launcher started the process; absent: this process starts the
  /// ranks itself.
  std::optional<WorkerEnvironment> worker;
  int world_size = 2;
  std::int64_t batch_per_rank = 0;
  int threads = 1;           ///< per rank
  bool set_to_none = false;  ///< whether gradients are undefined before a step instead of zero
  bool alone = false;        ///< whether to run only the variants, without their baselines

  /// Whether this process writes the run's output.
  bool speaks() const { return !worker || worker->rank == 0; }
};

/// Checks everything that can be checked before a rank exists. Throws ConfigError, which names the
/// option, if a value is invalid or an option belongs to the other mode.
BenchStepSettings resolve(const BenchStepArguments& arguments);

/// Checks the options that both modes have and stores them in `settings`; `default_rounds` applies
/// without --rounds. Throws ConfigError, which names the option. Does not check whether the --json
/// file can be written: only the process that writes it does (check_output_file()).
void resolve_common(const BenchStepArguments& arguments, int default_rounds,
                    CommonStepSettings& settings);

/// If an option was `given`, throws a ConfigError with `text` after the command's name.
void refuse_step_option(bool given, const std::string& text);

}  // namespace lockstep
