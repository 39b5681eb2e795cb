// Which processes of a group are still alive, without asking them.
#pragma once

#include <sys/types.h>

#include <vector>

namespace lockstep::shm {

/// Holds one pidfd per rank: a descriptor that becomes readable when that very process ends, even
/// if its number is used again. A check costs one system call.
class Liveness {
 public:
  /// `pids[r]` is the process of rank r. CommError when one cannot be watched (already dead).
  explicit Liveness(const std::vector<pid_t>& pids);
  ~Liveness();
  Liveness(const Liveness&) = delete;
  Liveness& operator=(const Liveness&) = delete;

  bool is_dead(int rank) const;
  /// In one system call.
  std::vector<int> dead_ranks() const;
  /// Alive, but by a signal or a debugger kept from running.
  bool is_stopped(int rank) const;

 private:
  std::vector<pid_t> pids_;
  std::vector<int> descriptors_;
};

}  // namespace lockstep::shm
