#include "monitored_barrier.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <lockstep/core/strings.h>

#include "operation.h"

namespace lockstep_c10d {
namespace {

using lockstep::Deadline;
using lockstep::str;
using lockstep::WorkPtr;

constexpr int kTag = (1 << 16) - 1;  // the highest tag that Gloo supports

at::Tensor message() { return at::zeros({1}, at::kByte); }

// Polls until `work` completes; returns false at the deadline. A wait that reached its deadline
// would end the operation.
bool completes(lockstep::Work& work, const Deadline& deadline) {
  while (!work.is_completed()) {
    if (deadline.expired()) return false;
    std::this_thread::sleep_for(kBetweenLooks);
  }
  if (const auto error = work.error()) std::rethrow_exception(error);
  return true;
}

[[noreturn]] void fail(lockstep::ProcessGroup& group, const std::string& reason) {
  group.abort(reason);
  C10_THROW_ERROR(DistBackendError, reason);
}

void wait_for_all(lockstep::ProcessGroup& group, std::chrono::milliseconds timeout,
                  bool wait_all_ranks) {
  const Deadline deadline(timeout);
  std::vector<WorkPtr> arrivals;
  for (int rank = 1; rank < group.size(); ++rank) {
    arrivals.push_back(group.irecv(message(), rank, kTag));
  }
  std::vector<int> missing;
  const auto who_failed = [&] {
    return str("[Rank 0]: ", wait_all_ranks ? "Ranks " : "Rank ", lockstep::join(missing),
               " failed to pass monitoredBarrier");
  };
  for (int rank = 1; rank < group.size() && (missing.empty() || wait_all_ranks); ++rank) {
    if (deadline.expired() && !wait_all_ranks) {
      fail(group, str("Rank 0 timed out in monitoredBarrier after ", timeout.count(), " ms"));
    }
    try {
      if (completes(*arrivals[static_cast<std::size_t>(rank - 1)], deadline)) continue;
      missing.push_back(rank);
    } catch (const lockstep::CommError& error) {
      // The group has ended, so it is unknown whether the following ranks would have arrived.
      missing.push_back(rank);
      fail(group, str(who_failed(), ": ", lockstep::first_line(error)));
    }
  }
  if (missing.empty()) return;
  fail(group, str(who_failed(), " in ", timeout.count(), " ms"));
}

void answer_all(lockstep::ProcessGroup& group, const Deadline& deadline) {
  std::vector<WorkPtr> answers;
  for (int rank = 1; rank < group.size(); ++rank) {
    answers.push_back(group.isend(message(), rank, kTag));
  }
  for (const WorkPtr& answer : answers) completes(*answer, deadline);
}

void come_and_wait(lockstep::ProcessGroup& group, std::chrono::milliseconds timeout) {
  try {
    const Deadline deadline(timeout);
    const WorkPtr arrival = group.isend(message(), 0, kTag);
    const WorkPtr answer = group.irecv(message(), 0, kTag);
    if (!completes(*answer, deadline)) {
      throw lockstep::TimeoutError(str("Timed out waiting ", timeout.count(), " ms"));
    }
  } catch (const lockstep::CommError& error) {
    C10_THROW_ERROR(DistBackendError,
                    str("Rank ", group.rank(),
                        " successfully reached monitoredBarrier, but received errors while waiting "
                        "for send/recv from rank 0. Please check rank 0 logs for faulty rank: ",
                        lockstep::first_line(error)));
  }
}

}  // namespace

void monitored_barrier(lockstep::ProcessGroup& group, std::chrono::milliseconds timeout,
                       std::chrono::milliseconds group_timeout, bool wait_all_ranks) {
  if (group.rank() != 0) return come_and_wait(group, group_timeout);
  wait_for_all(group, timeout, wait_all_ranks);
  answer_all(group, Deadline(group_timeout));
}

}  // namespace lockstep_c10d
