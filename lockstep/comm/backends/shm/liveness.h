// Checks which processes of a group are alive, without communicating with them.
#pragma once

#include <sys/types.h>

#include <vector>

namespace lockstep::shm {

/// Holds one pidfd per rank: a descriptor that becomes readable when that process ends. It stays
/// correct when the PID is reused. A check costs one system call.
class Liveness {
 public:
  /// `pids[r]` is the process of rank r. Throws CommError when a process cannot be watched, for
  /// example because it is already dead.
  explicit Liveness(const std::vector<pid_t>& pids);
  ~Liveness();
  Liveness(const Liveness&) = delete;
  Liveness& operator=(const Liveness&) = delete;

  bool is_dead(int rank) const;
  /// Checks all ranks in one system call.
  std::vector<int> dead_ranks() const;
  /// Whether the process is alive but stopped by a signal or a debugger.
  bool is_stopped(int rank) const;

 private:
  std::vector<pid_t> pids_;
  std::vector<int> descriptors_;
};

}  // namespace lockstep::shm
