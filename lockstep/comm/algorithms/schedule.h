// Schedules: each rank's part in an all-reduce over point-to-point messages, as data. A schedule
// says which elements a rank exchanges with which peer in which step, and what happens to received
// data. It depends neither on LibTorch nor on communication, so it can be executed
// (schedule_work.h), predicted (cost_model.h), drawn and simulated.
#pragma once

#include <cstddef>
#include <vector>

#include <lockstep/comm/call/algorithm.h>

namespace lockstep::comm {

/// Elements [first, first + count) of the flat tensor.
struct ScheduledRange {
  std::size_t first = 0;
  std::size_t count = 0;
  std::size_t end() const { return first + count; }
  friend bool operator==(const ScheduledRange&, const ScheduledRange&) = default;
};

/// The `index`-th of `parts` parts of [0, count). Sizes differ by at most one element; some parts
/// are empty if there are fewer elements than parts.
ScheduledRange part_of(std::size_t count, int parts, int index);

struct ScheduledSend {
  int peer = 0;
  ScheduledRange range{};
};

enum class OnArrival {
  kReduce,     ///< combine with this rank's elements of the range
  kOverwrite,  ///< replace this rank's elements
};

struct ScheduledReceive {
  int peer = 0;
  ScheduledRange range{};
  OnArrival then = OnArrival::kReduce;
};

/// All transfers of a step run concurrently. When all of them are complete, the step combines the
/// received data: pieces of the same range are combined with this rank's elements in rank order.
/// Different ranges of a step do not overlap. A step may be empty.
struct ScheduleStep {
  std::vector<ScheduledSend> sends{};
  std::vector<ScheduledReceive> receives{};
  bool empty() const { return sends.empty() && receives.empty(); }
};

/// A rank's steps in order. All ranks have the same number of steps, and a transfer belongs to the
/// same step on both sides. No transfer is empty.
using CommSchedule = std::vector<ScheduleStep>;

/// Selects the schedule of `rank` of `size` for `count` elements.
struct ScheduleRequest {
  int rank = 0;
  int size = 1;
  std::size_t count = 0;
  /// Elements per chunk for the tree and the all-to-all exchange, which work chunk by chunk. 0: one
  /// chunk.
  std::size_t chunk = 0;
};

/// Throws InternalError for kAuto and kNative, which have no schedule. There are no steps for one
/// rank or for zero elements.
CommSchedule make_schedule(Algorithm algorithm, const ScheduleRequest& request);

/// The schedules of all ranks; request.rank is ignored.
std::vector<CommSchedule> make_schedules(Algorithm algorithm, ScheduleRequest request);

/// The total number of elements that a rank sends or receives.
std::size_t elements_sent(const CommSchedule& schedule);
std::size_t elements_received(const CommSchedule& schedule);

/// Building blocks of the algorithms. Empty ranges are skipped.
void add_send(ScheduleStep& step, int peer, ScheduledRange range);
void add_receive(ScheduleStep& step, int peer, ScheduledRange range, OnArrival then);

/// The chunks of a request: at least one, unless there are no elements.
std::vector<ScheduledRange> chunks_of(const ScheduleRequest& request);

}  // namespace lockstep::comm
