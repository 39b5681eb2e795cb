// How many threads LibTorch's operations use on each member of a team of threads.
#pragma once

#include <cstddef>
#include <vector>

#include <lockstep/parallel/base/thread_team.h>

namespace lockstep {

/// `threads` divided among `members`: the first ones get one more where they cannot be divided, and
/// each gets at least 1. `members` is at least 1.
std::vector<int> divided_threads(int threads, std::size_t members);

/// From now on member i of `team` computes LibTorch's parallel operations with counts[i] threads,
/// at least 1. The calling thread keeps its number, and new threads start with it. No other thread
/// may set a number of threads meanwhile. LOCKSTEP_CHECK: a count for each member.
void set_threads_of_members(ThreadTeam& team, const std::vector<int>& counts);

/// From now on each member of `team`, with the threads that help it, stays on a share of its own of
/// the calling thread's processors, as ranks stay on theirs. In a virtual machine the kernel may
/// hold an idle processor for one that is not there, and let a member that is woken wait on the
/// processor of whoever woke it, until the next tick of the clock, 4 ms later. Does nothing where a
/// member's share has fewer processors than the member has threads (`counts`), and where the system
/// refuses.
void keep_members_apart(ThreadTeam& team, const std::vector<int>& counts);

/// As long as it lives, the thread that made it computes LibTorch's parallel operations alone, and
/// threads that start meanwhile begin so. For the caller of a team that has all processors: what
/// the caller computes between the team's tasks is little, and its helping threads would have to
/// start anew each time. That can cost many milliseconds: OpenMP's threads wait for each other
/// without sleeping, on a processor that the new thread needs to begin. Ends on the same thread.
class SingleThreadScope {
 public:
  SingleThreadScope();
  ~SingleThreadScope();
  SingleThreadScope(const SingleThreadScope&) = delete;
  SingleThreadScope& operator=(const SingleThreadScope&) = delete;

 private:
  int before_;
};

/// Ends the threads that help the calling thread with LibTorch's parallel operations, before a team
/// that shares their processors begins: OpenMP's threads wait for the next operation for some
/// milliseconds without sleeping. That operation starts them again, which takes tens of
/// microseconds. Does nothing inside a parallel operation, and where the OpenMP library is older
/// than OpenMP 5.0, whose omp_pause_resource_all() this is.
void release_helping_threads();

}  // namespace lockstep
