// What `lockstep bench comm` measures: its checked options, which are passed to each rank.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/bench/collectives/collective.h>
#include <lockstep/comm/call/algorithm.h>
#include <lockstep/comm/call/data_type.h>
#include <lockstep/comm/rendezvous/worker_environment.h>

namespace lockstep::bench {

/// `lockstep bench comm --explain`.
struct ExplainSettings {
  Algorithm algorithm = Algorithm::kRing;
  std::int64_t bytes = 0;
  std::filesystem::path svg;  ///< empty: no picture
};

struct BenchCommSettings {
  std::vector<CallKind> collectives;
  std::vector<Algorithm> algorithms;  ///< algorithms of all_reduce
  std::string backend;
  /// The environment set by the launcher that started this process; absent: this process starts the
  /// ranks.
  std::optional<WorkerEnvironment> worker;
  int world_size = 2;
  int processors = 1;  ///< available to this process, before its ranks are pinned
  std::vector<std::int64_t> sizes;
  detail::DataType type = detail::DataType::kFloat32;
  bool symmetric = true;          ///< whether to measure in memory of the group, if supported
  bool private_memory = true;     ///< whether to measure in private memory of each rank
  bool beside_computing = false;  ///< whether to measure the cost to a rank that computes meanwhile
  int repetitions = 0;            ///< calls per row; 0: as many as fit into `seconds`
  double seconds = 0;
  std::filesystem::path json;
  std::filesystem::path trace{};  ///< folder for one trace per row; empty: no traces
  std::chrono::milliseconds timeout{};
  std::optional<ExplainSettings> explain;

  /// Whether this process writes the run's output.
  bool speaks() const { return !worker || worker->rank == 0; }
};

}  // namespace lockstep::bench
