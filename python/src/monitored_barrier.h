// A barrier that names the missing ranks, like Gloo's.
#pragma once

#include <chrono>

#include <lockstep/comm/group/process_group.h>

namespace lockstep_c10d {

/// Collective. Rank 0 of the group waits for a message from each of the other ranks, in rank order,
/// and then answers all of them. If a message has not arrived after `timeout`, rank 0 throws a
/// DistBackendError that names its sender (with `wait_all_ranks`, all missing ranks) and ends the
/// group, so that the other ranks throw, too. They wait at most `group_timeout`. If the group ends
/// earlier, for example because a rank died, the error names the awaited rank and the reason why
/// the group ended.
void monitored_barrier(lockstep::ProcessGroup& group, std::chrono::milliseconds timeout,
                       std::chrono::milliseconds group_timeout, bool wait_all_ranks);

}  // namespace lockstep_c10d
