// The options of `lockstep bench comm`, checked: what the launcher hands to each rank.
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

namespace lockstep {

/// As the user gave them.
struct BenchCommArguments {
  std::string collective = "all_reduce";
  std::string algorithm = "auto";
  std::string backend = "auto";
  std::optional<int> nproc_per_node;
  std::string sizes;  ///< empty: 4 B to 256 MiB
  std::string dtype = "float32";
  bool symmetric = false;
  bool private_memory = false;
  bool beside_computing = false;
  std::optional<int> repetitions;
  std::optional<double> seconds;
  std::optional<std::string> json;
  std::optional<std::string> trace;
  double timeout_seconds = 60;

  bool explain = false;
  std::optional<std::string> bytes;
  std::optional<std::string> out;
};

/// `lockstep bench comm --explain`.
struct ExplainSettings {
  Algorithm algorithm = Algorithm::kRing;
  std::int64_t bytes = 0;
  std::filesystem::path svg;  ///< empty: none
};

struct BenchCommSettings {
  std::vector<BenchCollective> collectives;
  std::vector<Algorithm> algorithms;  ///< of all_reduce
  std::string backend;
  /// The environment of the launcher that started this process; absent: we start the ranks.
  std::optional<WorkerEnvironment> worker;
  int world_size = 2;
  int processors = 1;  ///< that this process may use, before its ranks are pinned
  std::vector<std::int64_t> sizes;
  DataType type = DataType::kFloat32;
  bool symmetric = true;          ///< measure in memory of the group, where it has such,
  bool private_memory = true;     ///< and in memory of each rank
  bool beside_computing = false;  ///< also what the calls cost a rank that computes meanwhile
  int repetitions = 0;            ///< calls of a row; 0: as many as fit into `seconds`
  double seconds = 0;
  std::filesystem::path json;
  std::filesystem::path trace{};  ///< folder of a trace for each row; empty: none
  std::chrono::milliseconds timeout{};
  std::optional<ExplainSettings> explain;

  /// Whether this process writes what the run has to say.
  bool speaks() const { return !worker || worker->rank == 0; }
};

/// Checks everything that can be checked before a rank exists. ConfigError names the option: also
/// one that would have no effect beside the others.
BenchCommSettings resolve(const BenchCommArguments& arguments);

}  // namespace lockstep
