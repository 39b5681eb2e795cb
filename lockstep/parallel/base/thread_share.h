// The number of threads that LibTorch's operations use on each member of a thread team.
#pragma once

#include <cstddef>
#include <vector>

#include <lockstep/core/export.h>
#include <lockstep/parallel/base/thread_team.h>

namespace lockstep {

/// While it lives, LibTorch's parallel operations use only one thread on the thread that made it,
/// and on threads that are started meanwhile. Meant for the caller of a team that uses all
/// processors: the caller computes little between the team's tasks, and its helping threads would
/// have to be restarted each time. A restart can cost many milliseconds, because OpenMP's threads
/// busy-wait for each other on a processor that the new thread needs to start. Must be destroyed on
/// the same thread.
class LOCKSTEP_API SingleThreadScope {
 public:
  SingleThreadScope();
  ~SingleThreadScope();
  SingleThreadScope(const SingleThreadScope&) = delete;
  SingleThreadScope& operator=(const SingleThreadScope&) = delete;

 private:
  int before_;
};

}  // namespace lockstep

namespace lockstep::detail {

/// Divides `threads` among `members`: each gets at least 1, and the first ones get one more if
/// there is a remainder. `members` is at least 1.
LOCKSTEP_API std::vector<int> divided_threads(int threads, std::size_t members);

/// From now on member i of `team` runs LibTorch's parallel operations with counts[i] threads, at
/// least 1. The calling thread keeps its number, and new threads start with it. No other thread may
/// set a number of threads meanwhile. LOCKSTEP_CHECK: there is a count for each member.
LOCKSTEP_API void set_threads_of_members(ThreadTeam& team, const std::vector<int>& counts);

/// From now on each member of `team`, with its helping threads, stays on a separate share of the
/// calling thread's processors, as ranks do. Otherwise the kernel of a virtual machine may mistake
/// an idle processor for a preempted one, and leave a woken member waiting on the processor of the
/// thread that woke it until the next clock tick, 4 ms later. No-op if a member's share has fewer
/// processors than the member has threads (`counts`), or if the system refuses.
LOCKSTEP_API void keep_members_apart(ThreadTeam& team, const std::vector<int>& counts);

/// Ends the threads that help the calling thread with LibTorch's parallel operations. Call it
/// before a team that shares their processors begins, because OpenMP's threads busy-wait for some
/// milliseconds for the next operation. The next operation restarts them, which takes tens of
/// microseconds. No-op inside a parallel operation, and with an OpenMP library older than OpenMP
/// 5.0, which introduced omp_pause_resource_all().
LOCKSTEP_API void release_helping_threads();

}  // namespace lockstep::detail
