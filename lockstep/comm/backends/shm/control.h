// The shared memory that the ranks of a group synchronise through: who has come how far.
//
// Every collective of a group has a number: the first is 0. Each rank publishes three counters that
// only grow and only it writes:
//
//   arrived   operations whose input it has made visible,
//   reduced   operations of which it has finished its share of the work,
//   released  operations whose result it has taken; their staging slot may be used again.
//
// "All arrived at k" allows to work on k, "all reduced k" allows to take the result. That is the
// whole protocol: no locks, one writer for each word, and as many operations in flight as fit into
// the ring of descriptions. Counters wrap around; they are compared by signed difference.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include <lockstep/comm/backends/shm/futex.h>
#include <lockstep/comm/backends/shm/reduce.h>

namespace lockstep::shm {

inline constexpr std::size_t kCacheLine = 64;
/// Operations that a rank may have arrived at before the slowest rank worked on them.
inline constexpr std::uint32_t kRing = 16;
/// Staged operations in flight: while one is being taken out, the next is being put in.
inline constexpr std::uint32_t kSlots = 2;

enum class OperationKind : std::uint8_t { kAllReduce, kBroadcast, kBarrier };

/// What a rank is doing, for its peers to compare with what they are doing.
struct OperationDescription {
  OperationKind kind = OperationKind::kBarrier;
  DataType type = DataType::kUInt8;
  ReduceOp op = ReduceOp::kSum;
  std::uint8_t symmetric = 0;   ///< both in symmetric memory, at `offset` of segment `segment`
  std::uint32_t root = 0;
  std::uint32_t segment = 0;
  std::uint64_t count = 0;      ///< elements of the whole call
  std::uint64_t offset = 0;     ///< symmetric: into the segment; staged: first element of this chunk
  bool operator==(const OperationDescription&) const = default;
};

/// "all_reduce[float32, 4]", for messages.
std::string describe(const OperationDescription& operation);

struct alignas(kCacheLine) RankState {
  Word arrived;
  Word reduced;
  Word released;
  Word sleepers;  ///< ranks that sleep on one of the words above; the writer wakes only if any
  Word left;      ///< 1 when this rank left the group in an orderly way
  std::atomic<std::int32_t> pid;
  alignas(kCacheLine) std::array<OperationDescription, kRing> operations;
};

/// The first reason why the group ended. `state`: 0 running, 1 being written, 2 ended.
struct alignas(kCacheLine) AbortState {
  Word state;
  std::uint32_t rank;
  char reason[1000];
};

/// The head of a control segment; RankState[size] and the staging slots follow.
struct alignas(kCacheLine) ControlHeader {
  std::uint64_t nonce[2];  ///< proves that both sides look at the same memory
  AbortState abort;
};

/// a - b for counters that wrap around.
inline std::int32_t counter_difference(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::int32_t>(a - b);
}

}  // namespace lockstep::shm
