// Records the last operations of a rank, for diagnosis after a failure.
//
//   FlightRecorder recorder(rank, world_size);
//   auto* group = recorder.add_group("world", {0, 1, 2});
//   const auto id = recorder.created(group, sequence, call);   // then started(id), completed(id)
//   recorder.dump("/tmp/flight");                              // /tmp/flight/rank_0
//
// With the files of all ranks in one folder, PyTorch's analyser reports where the ranks diverged:
//   python -m torch.distributed.flight_recorder.fr_trace /tmp/flight
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <lockstep/comm/call/description.h>
#include <lockstep/comm/call/recorded_call.h>
#include <lockstep/core/clock.h>

namespace lockstep::comm {

namespace flight {
/// The readings of two clocks at the same moment.
struct Moment {
  std::uint64_t ticks = 0;
  Clock::time_point time{};
};
}  // namespace flight

/// Each rank has one recorder for all its groups. Safe to use from several threads; dump() may run
/// while other threads record. Recording neither allocates nor locks nor throws. The three calls
/// for one operation together take about 50 ns.
class FlightRecorder {
 public:
  static constexpr std::size_t kDefaultCapacity = 2000;

  /// The recorder's data about a group; owned by the recorder.
  struct Group;
  using Id = std::uint64_t;

  FlightRecorder(int rank, int world_size, std::size_t capacity = kDefaultCapacity);
  ~FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  /// `name` is the same on all members and differs from that of any other group of this rank;
  /// `world_ranks` are the members, in the order of their ranks in the group.
  Group* add_group(std::string name, std::vector<int> world_ranks,
                   std::string description = "undefined");
  /// Call it when no more operations of `group` will be recorded. The recorder forgets the group
  /// once its last operations have been overwritten.
  void remove_group(Group* group);

  /// Records that an operation was called. `sequence` is its number in the group, the "number 17"
  /// of error messages; collectives and point-to-point operations (by call.kind) are counted
  /// separately. If `begun`, the operation is also recorded as started.
  Id created(Group* group, std::uint64_t sequence, const CallDescription& call,
             bool begun = false) noexcept;
  /// Records that the transport has begun the operation.
  void started(Id id) noexcept;
  /// Records success. For a receive from any source, `source` is the sender's rank in the group.
  void completed(Id id, int source = -1) noexcept;
  /// Records an error. PyTorch's analyser has no such state: it sees an operation that never ended.
  void failed(Id id) noexcept;

  /// Writes DIRECTORY/rank_N, atomically replacing an older file, and returns its path. A missing
  /// directory is created with access for this user only. Throws DataError if the directory, or a
  /// user_flight_directory() that contains it, belongs to another user or cannot be written.
  std::filesystem::path dump(const std::filesystem::path& directory) const;

  /// The recorded operations that have succeeded since `from`, in the order of their calls. An
  /// operation that ends during this call may be missing. Times are accurate to about a
  /// microsecond, unless the thread was preempted while it read both clocks.
  std::vector<RecordedCall> completed_since(Clock::time_point from) const;

  /// The contents of the file that dump() writes: a pickled dictionary, see
  /// flight_recorder_dump.cpp.
  std::string pickle() const;

 private:
  struct Record;
  struct Slot;
  struct Snapshot;

  Slot* change_state(Id id, std::uint64_t state) noexcept;
  std::vector<Snapshot> snapshot() const;
  std::string message_name(const Group& group, const Record& record) const;

  const int rank_;
  const int world_size_;
  const std::size_t capacity_;
  std::unique_ptr<Slot[]> slots_;
  std::atomic<Id> next_{0};
  const flight::Moment first_;   ///< the creation, on the recorder's clock and on that of traces
  const std::int64_t first_ns_;  ///< the creation, on the wall clock
  mutable std::mutex groups_mutex_;
  std::map<std::uint64_t, std::unique_ptr<Group>> groups_;
  std::uint64_t next_group_ = 0;

  friend class FlightRecorderDump;
};

/// lockstep_flight_UID in the folder for temporary files. It holds one folder for each of this
/// user's jobs.
std::filesystem::path user_flight_directory();

}  // namespace lockstep::comm
