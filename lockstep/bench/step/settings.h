// The checked options of `lockstep bench step`, which the launcher passes to each rank.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/comm/rendezvous/worker_environment.h>

namespace lockstep {

inline constexpr const char* kBenchStep = "bench step";  ///< begins messages of both modes

/// The options as given by the user, for both modes. bench/strategies/settings.h resolves
/// the options of --strategy all.
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

/// Settings common to both modes, with equal ranges.
struct CommonStepSettings {
  std::string backend;    ///< of the group of ranks
  std::string precision;  ///< "32" or "bf16"
  std::string optimizer;  ///< "sgd", "adam" or "adamw"
  int rounds = 0;
  /// Timed steps per row and round. 0: as many as take 0.2 s; with --strategy all as many as take 1
  /// s, at least 3.
  std::int64_t steps = 0;
  std::filesystem::path json;
  std::filesystem::path trace{};  ///< folder of a trace for each row; empty: none
  std::chrono::milliseconds timeout{};
};

/// One way to train on all ranks together, a row of the result.
struct StepVariant {
  std::string strategy;
  /// Absent: one bucket for all gradients, reduced after the backward.
  std::optional<double> bucket_cap_mb;
  /// "as-is", "flat", "shared", or "auto": as-is for ddp; for zero1, shared on one host, otherwise
  /// flat.
  std::string parameter_memory;
  bool find_unused_parameters = false;
};

struct BenchStepSettings : CommonStepSettings {
  std::string model;
  std::vector<StepVariant> variants;
  /// The environment of the launcher that started this process; absent: this process starts the
  /// ranks.
  std::optional<WorkerEnvironment> worker;
  int world_size = 2;
  std::int64_t batch_per_rank = 0;
  int threads = 1;           ///< per rank
  bool set_to_none = false;  ///< whether gradients are undefined before a step instead of zero
  bool alone = false;        ///< whether to run only the variants, without their baselines

  /// Whether this process writes the run's output.
  bool speaks() const { return !worker || worker->rank == 0; }
};

/// Checks everything that can be checked before a rank exists. ConfigError names the option,
/// including options of the other mode.
BenchStepSettings resolve(const BenchStepArguments& arguments);

/// Checks the options common to both modes and stores them in `settings`. Without --rounds there
/// are `default_rounds`. ConfigError names the option. The process that writes --json checks
/// whether it can (check_output_file()).
void resolve_common(const BenchStepArguments& arguments, int default_rounds,
                    CommonStepSettings& settings);

/// Throws a ConfigError with `text`, prefixed with the command's name, if `given`.
void refuse_step_option(bool given, const std::string& text);

}  // namespace lockstep
