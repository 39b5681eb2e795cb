// The last operations of a rank, kept for the moment in which something fails.
//
//   FlightRecorder recorder(rank, world_size);
//   auto* group = recorder.add_group("world", {0, 1, 2});
//   const auto id = recorder.created(group, sequence, call);   // then started(id), completed(id)
//   recorder.dump("/tmp/flight");                              // /tmp/flight/rank_0
//
// With the files of all ranks in one folder PyTorch's analyser says where they parted:
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

namespace lockstep {

namespace flight {
/// A moment on two clocks.
struct Moment {
  std::uint64_t ticks = 0;
  Clock::time_point time{};
};
}  // namespace flight

/// One for each rank, over all its groups. Safe to use from several threads, also dump() while
/// others record. Recording neither allocates nor locks nor throws; all three calls of an operation
/// together take about 50 ns.
class FlightRecorder {
 public:
  static constexpr std::size_t kDefaultCapacity = 2000;

  /// A group as the recorder knows it; owned by the recorder.
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
  /// No operation of it will be recorded any more. Its last ones remain, and after them it is
  /// forgotten.
  void remove_group(Group* group);

  /// An operation has been called. `sequence` counts the collectives of the group, and its
  /// point-to-point operations (by call.kind) apart; it is the "number 17" of error messages.
  /// `begun`: started() at once.
  Id created(Group* group, std::uint64_t sequence, const CallDescription& call,
             bool begun = false) noexcept;
  /// Its transport has begun.
  void started(Id id) noexcept;
  /// It has ended well; of a receive from any source with the rank in the group that sent.
  void completed(Id id, int source = -1) noexcept;
  /// It has ended with an error. The analyser knows no such state: to it, it never ended.
  void failed(Id id) noexcept;

  /// Writes DIRECTORY/rank_N, replacing an older one at once, and returns its path. The directory
  /// is made where it is missing, for this user alone; DataError where it, or a
  /// user_flight_directory() that it is in, belongs to another user or cannot be written.
  std::filesystem::path dump(const std::filesystem::path& directory) const;

  /// What has ended well since `from`, among the last operations, in the order of their calls. An
  /// operation that ends just now may be missing. Times are exact to about a microsecond, unless
  /// the thread lost its processor while both clocks were read.
  std::vector<RecordedCall> completed_since(Clock::time_point from) const;

  /// What dump() writes: a pickle of a dictionary, see flight_recorder_dump.cpp.
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
  const flight::Moment first_;   ///< on the recorder's clock and on that of traces
  const std::int64_t first_ns_;  ///< the same moment on the wall clock
  mutable std::mutex groups_mutex_;
  std::map<std::uint64_t, std::unique_ptr<Group>> groups_;
  std::uint64_t next_group_ = 0;

  friend class FlightRecorderDump;
};

/// lockstep_flight_UID in the folder for temporary files: of this user's jobs, a folder each.
std::filesystem::path user_flight_directory();

}  // namespace lockstep
