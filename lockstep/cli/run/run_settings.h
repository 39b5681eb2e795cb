// The checked options of `lockstep run`: what to start, on how many ranks, and where the ranks
// meet.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/comm/backends/nccl/gpu_sharing.h>
#include <lockstep/launch/launcher.h>

namespace lockstep::cli {

/// The options as given by the user.
struct RunArguments {
  int nproc_per_node = 1;
  int nnodes = 1;
  std::optional<int> node_rank;
  std::optional<std::string> master_addr;
  std::optional<int> master_port;
  int threads = 0;
  double shutdown_timeout_seconds = 5;
  bool label = false;
  bool share_gpu = false;
  std::vector<std::string> command;  ///< PROGRAM and its arguments
};

struct RunSettings {
  LaunchOptions launch;
  std::optional<nccl::GpuSharing> gpu_sharing{};  ///< Absent: each rank has a GPU of its own.
  int threads = 0;         ///< Per rank; 0: OMP_NUM_THREADS if set, otherwise the rank's share.
  std::string executable;  ///< The file that PROGRAM resolves to.
  std::vector<std::string> command;
};

/// Throws ConfigError if a value is out of range, if there are several hosts but no address where
/// they meet, if the program cannot be found or executed, or if ranks shall share GPUs but the
/// loaded NCCL does not support it.
RunSettings resolve(const RunArguments& arguments);

/// The compute threads of a rank under `settings`, for OMP_NUM_THREADS; nothing if the user has set
/// that variable.
std::optional<int> threads_of_rank(const RunSettings& settings, int local_rank);

}  // namespace lockstep::cli
