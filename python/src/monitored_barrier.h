// A barrier that names the ranks that did not come, as Gloo's does.
#pragma once

#include <chrono>

#include <lockstep/comm/group/process_group.h>

namespace lockstep_c10d {

/// Collective. Rank 0 of the group waits for a message from each of the others, in the order of the
/// ranks, and answers all of them. Where one has not come after `timeout`, rank 0 throws a
/// DistBackendError that names it (with `wait_all_ranks` all that have not come) and ends the
/// group, so that the others throw, too. They wait at most `group_timeout`. Where the group ends
/// before, as by the death of a rank, the error names the rank that was waited for and says why the
/// group ended.
void monitored_barrier(lockstep::ProcessGroup& group, std::chrono::milliseconds timeout,
                       std::chrono::milliseconds group_timeout, bool wait_all_ranks);

}  // namespace lockstep_c10d
