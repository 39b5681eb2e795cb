// Internals of FlightRecorder, shared by its source files.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/comm/diagnostics/flight_recorder.h>

namespace lockstep::comm {

/// Messages between two ranks are matched by counting them at both ends: the k-th message that one
/// rank sent is the k-th that the other received. A receive from any source is counted once its
/// source is known.
struct FlightRecorder::Group {
  Group(std::uint64_t number, std::string name, std::vector<int> ranks, std::string description)
      : id(number),
        name(std::move(name)),
        description(std::move(description)),
        world_ranks(std::move(ranks)),
        sent(world_ranks.size()),
        received(world_ranks.size()) {}

  const std::uint64_t id;
  const std::string name;
  const std::string description;
  const std::vector<int> world_ranks;
  std::vector<std::atomic<std::uint64_t>> sent;  ///< message counts, by rank in the group
  std::vector<std::atomic<std::uint64_t>> received;
  Id first_id = 0;  ///< next id when the group was added; earlier ids belong to other groups
  bool removed = false;
  Id last_id = 0;  ///< next id when the group was removed; later ids belong to other groups
};

/// The part of an operation that is known when it is created. Copied to and from atomic words.
struct FlightRecorder::Record {
  static constexpr std::uint64_t kNoMessage = ~std::uint64_t{0};

  Group* group = nullptr;
  std::uint64_t group_id = 0;
  std::uint64_t sequence = 0;
  std::uint64_t message = kNoMessage;  ///< number of a point-to-point message between its two ranks
  CallDescription call;
};

namespace flight {
// The states of a slot, in the low bits of its tag; the operation's number plus one is above them.
inline constexpr std::uint64_t kWriting = 0, kScheduled = 1, kStarted = 2, kCompleted = 3,
                               kFailed = 4;
inline constexpr unsigned kStateBits = 3;
inline constexpr std::uint64_t kStateMask = (1u << kStateBits) - 1;
inline constexpr std::uint64_t tag(std::uint64_t id, std::uint64_t state) {
  return ((id + 1) << kStateBits) | state;
}

/// Reads a processor counter if user code may read one (7 to 10 ns), else a clock (24 ns). The cost
/// matters because an operation that takes 300 ns reads it three times.
std::uint64_t ticks() noexcept;
std::int64_t wall_clock_ns() noexcept;
/// The current moment. Reads both clocks several times and returns the closest pair of readings,
/// because the thread may be preempted between the two.
Moment now() noexcept;
}  // namespace flight

/// One entry of the recorder's ring buffer. A sequence lock protects it: readers check the tag
/// before and after copying.
struct alignas(64) FlightRecorder::Slot {
  static constexpr std::size_t kWords = (sizeof(Record) + 7) / 8;

  std::atomic<std::uint64_t> tag{0};
  std::atomic<std::uint64_t> created{0};
  std::atomic<std::uint64_t> started{0};
  std::atomic<std::uint64_t> ended{0};
  std::atomic<std::uint64_t> source{0};   ///< receive from any: sender plus one, 0 until known
  std::atomic<std::uint64_t> message{0};  ///< receive from any: message number plus one, or 0
  std::array<std::atomic<std::uint64_t>, kWords> record{};
};

/// A consistent copy of a slot: the slot was not written during the copy.
struct FlightRecorder::Snapshot {
  Id id;
  std::uint64_t state, created, started, ended;
  Record record;
};

}  // namespace lockstep::comm
