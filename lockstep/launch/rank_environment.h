// The variables by which a rank knows its place.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include <lockstep/launch/launcher.h>
#include <lockstep/launch/meeting_point.h>

namespace lockstep {

/// What all ranks that one launcher starts have in common.
struct JobEnvironment {
  LaunchOptions options;
  pid_t launcher = -1;
  /// Nothing: ranks keep what is in the environment.
  std::optional<std::string> secret;

  int world_size() const { return options.nnodes * options.nproc_per_node; }
  int rank_of(int local_rank) const {
    return options.node_rank * options.nproc_per_node + local_rank;
  }
};

/// LOCKSTEP_SECRET, else a random one where all ranks are on this host: on loopback, too, every
/// user of the host reaches the meeting point. ConfigError where other machines reach it and the
/// user has set none.
std::optional<std::string> secret_of_job(const LaunchOptions& options);

/// Makes this process, just forked, a rank of the job to all who read torchrun's variables.
/// Variables of a launcher around us do not apply.
void write_rank_environment(const JobEnvironment& job, int local_rank,
                            const MeetingPoint& meeting_point);

}  // namespace lockstep
