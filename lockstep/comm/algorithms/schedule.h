// What each rank does in an all-reduce over point-to-point alone, as data: who sends which elements
// to whom in which step, and what becomes of what arrives. Without LibTorch and without
// communication, so that a schedule can be executed (schedule_work.h), predicted (cost_model.h),
// drawn and simulated.
#pragma once

#include <cstddef>
#include <vector>

#include <lockstep/comm/call/algorithm.h>

namespace lockstep {

/// Elements [first, first + count) of the flat tensor.
struct ScheduledRange {
  std::size_t first = 0;
  std::size_t count = 0;
  std::size_t end() const { return first + count; }
  friend bool operator==(const ScheduledRange&, const ScheduledRange&) = default;
};

/// The `index`-th of `parts` parts of [0, count): all equal but for one element, some empty where
/// there are fewer elements than parts.
ScheduledRange part_of(std::size_t count, int parts, int index);

struct ScheduledSend {
  int peer = 0;
  ScheduledRange range{};
};

enum class OnArrival {
  kReduce,     ///< combined with what this rank has there
  kOverwrite,  ///< replaces it
};

struct ScheduledReceive {
  int peer = 0;
  ScheduledRange range{};
  OnArrival then = OnArrival::kReduce;
};

/// All transfers of a step are under way together. The step is over when all are complete; only
/// then are arrivals combined, those of the same range together with the rank's own elements and in
/// the order of the ranks. Other ranges of a step do not overlap. A step may be empty.
struct ScheduleStep {
  std::vector<ScheduledSend> sends{};
  std::vector<ScheduledReceive> receives{};
  bool empty() const { return sends.empty() && receives.empty(); }
};

/// A rank's steps, one after the other. All ranks have the same number of steps, and both sides of
/// a transfer know it by the same step. No transfer is empty.
using CommSchedule = std::vector<ScheduleStep>;

/// Which schedule: that of `rank` of `size` for `count` elements.
struct ScheduleRequest {
  int rank = 0;
  int size = 1;
  std::size_t count = 0;
  /// The tree and the all-to-all exchange work chunk by chunk: elements of one. 0: all in one.
  std::size_t chunk = 0;
};

/// Not for kAuto and kNative, which are no schedules (InternalError). One rank, or no element: no
/// steps.
CommSchedule make_schedule(Algorithm algorithm, const ScheduleRequest& request);

/// The schedules of all ranks; request.rank is ignored.
std::vector<CommSchedule> make_schedules(Algorithm algorithm, ScheduleRequest request);

/// Elements that a rank sends, or receives, in all.
std::size_t elements_sent(const CommSchedule& schedule);
std::size_t elements_received(const CommSchedule& schedule);

/// Building blocks of the algorithms: they leave out what is empty.
void add_send(ScheduleStep& step, int peer, ScheduledRange range);
void add_receive(ScheduleStep& step, int peer, ScheduledRange range, OnArrival then);

/// The chunks of a request, at least one unless there is no element.
std::vector<ScheduledRange> chunks_of(const ScheduleRequest& request);

}  // namespace lockstep
