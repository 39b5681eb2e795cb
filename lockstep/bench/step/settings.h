// What `lockstep bench step` measures: its checked options, which are passed to each rank.
//
// The command has two modes. The first times ddp and zero1 in one set of ranks; its settings are in
// this file. The second, selected by --strategy all, times each strategy in processes of its own;
// its settings are in bench/strategies/settings.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/comm/rendezvous/worker_environment.h>

namespace lockstep::bench {

/// Settings that both modes have, with the same permitted values in each.
struct CommonStepSettings {
  std::string backend;    ///< backend of the group of ranks
  std::string precision;  ///< "32" or "bf16"
  std::string optimizer;  ///< "sgd", "adam" or "adamw"
  int rounds = 0;
  /// Timed steps per row and round. 0: as many as take 0.2 s, from 1 to 50; with --strategy all, as
  /// many as take 1 s, from 3 to 1000.
  std::int64_t steps = 0;
  std::filesystem::path json;
  std::filesystem::path trace{};  ///< folder for one trace per row; empty: no traces
  std::chrono::milliseconds timeout{};
};

/// A strategy with its options, run by all ranks together: one row of the result.
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

}  // namespace lockstep::bench
