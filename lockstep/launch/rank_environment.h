// The environment variables that tell a rank its rank and its job.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include <lockstep/launch/launcher.h>
#include <lockstep/launch/meeting_point.h>

namespace lockstep::launch {

/// The settings that all ranks of one launcher share.
struct JobEnvironment {
  LaunchOptions options;
  pid_t launcher = -1;
  /// The job's secret. If absent, LOCKSTEP_SECRET is left unchanged.
  std::optional<std::string> secret;

  int world_size() const { return options.nnodes * options.nproc_per_node; }
  int rank_of(int local_rank) const {
    return options.node_rank * options.nproc_per_node + local_rank;
  }
};

/// Returns LOCKSTEP_SECRET if it is set. Otherwise returns a random secret if all ranks are on this
/// host, because every user of the host can reach the meeting point, even on loopback. With several
/// hosts and no LOCKSTEP_SECRET, throws a ConfigError if other machines can reach the meeting
/// point, and returns std::nullopt otherwise.
std::optional<std::string> secret_of_job(const LaunchOptions& options);

/// Sets torchrun's variables, which make this process, just forked, a rank of the job. Removes
/// variables of an outer launcher.
void write_rank_environment(const JobEnvironment& job, int local_rank,
                            const MeetingPoint& meeting_point);

}  // namespace lockstep::launch
