// The options of `lockstep run`, checked: what to start, how often, and where the ranks meet.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/launch/launcher.h>

namespace lockstep {

/// As the user gave them.
struct RunArguments {
  int nproc_per_node = 1;
  int nnodes = 1;
  std::optional<int> node_rank;
  std::optional<std::string> master_addr;
  std::optional<int> master_port;
  int threads = 0;
  double shutdown_timeout_seconds = 5;
  bool label = false;
  std::vector<std::string> command;  ///< PROGRAM and its arguments
};

struct RunSettings {
  LaunchOptions launch;
  int threads = 0;         ///< Of each rank; 0: what OMP_NUM_THREADS says, else its share.
  std::string executable;  ///< The file that PROGRAM means.
  std::vector<std::string> command;
};

/// ConfigError for values outside of their ranges, several hosts without a meeting point, and a
/// program that cannot be found or executed.
RunSettings resolve(const RunArguments& arguments);

/// The compute threads of a rank under `settings`, for OMP_NUM_THREADS; nothing where the user has
/// set that.
std::optional<int> threads_of_rank(const RunSettings& settings, int local_rank);

}  // namespace lockstep
