// How a group ends for one of its ranks: some rank aborts it, dies, or leaves.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/comm/backends/shm/control.h>
#include <lockstep/comm/backends/shm/liveness.h>

namespace lockstep::shm {

/// Safe to use from several threads, except for watch().
class GroupEnd {
 public:
  /// `world_ranks` are the ranks' names in error messages (see EngineOptions).
  GroupEnd(const Control& control, int rank, const std::vector<int>& world_ranks);

  /// From this call on, deaths are detected. `pids[r]` is the process of rank r.
  void watch(const std::vector<pid_t>& pids) { liveness_.emplace(pids); }
  /// Tells the peers that this rank has left, and wakes those that sleep on its futexes.
  void leave();

  /// Aborts the group for all ranks and wakes them; the first reason wins. `late`: they throw
  /// TimeoutError instead of CommError.
  void abort(const std::string& reason, bool late = false);
  /// Makes throw_if_aborted() throw on this rank. Call it while holding the engine's lock, so that
  /// no thread is moving data afterwards.
  void stop() { stopped_ = true; }
  /// Calls stop() and abort(), then throws the reason.
  [[noreturn]] void fail(const std::string& reason, bool late = false);
  /// Throws the reason for which a rank aborted the group, if one did.
  void throw_if_aborted();

  /// Whether a watched rank ended without leaving.
  bool died(int rank) const;
  /// The peers that died, found in one system call.
  std::vector<int> dead_peers() const;
  bool has_left(int rank) const;
  /// "rank 1 (process 4711) died", "rank 1 left the group", or "" for a rank that is still there.
  std::string why_gone(int rank) const;
  /// The peers that a signal or a debugger has stopped, such as "rank 2 (process 4711), which is
  /// stopped", or "".
  std::string stopped_peers() const;

  /// "rank 3".
  std::string name(int rank) const;
  /// "rank 3 (process 4711)".
  std::string name_and_process(int rank) const;

 private:
  void wake_all(int rank) const;

  const Control& control_;
  const int rank_;
  const std::vector<int>& world_ranks_;
  std::optional<Liveness> liveness_;
  std::atomic<bool> stopped_ = false;  // this rank moves no more data
};

}  // namespace lockstep::shm
