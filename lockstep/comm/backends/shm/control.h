// The control segment: shared memory in which the ranks of a group publish their progress.
//
// The chunks of a group's collectives are numbered from 0. Each rank publishes three counters,
// which only increase and which only that rank writes:
//
//   arrived    chunks whose input this rank has made visible to its peers,
//   worked     chunks for which this rank has done the work that its peers wait for,
//   released   chunks whose result this rank has taken; their staging slots may be reused.
//
// A rank may work on chunk k once all ranks have arrived at k, and may take the result once all
// ranks have worked on k. This is the whole protocol: it needs no locks, each counter has one
// writer, and the ring of arrivals limits how many chunks are in flight. The counters wrap around,
// so they are compared by signed difference.
//
// A small collective moves only a few cache lines between each pair of ranks, and a very small one
// moves a single line: an Arrival holds the counter, the fingerprint of the rank's calls and the
// data.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>

#include <lockstep/comm/call/description.h>
#include <lockstep/comm/waiting/futex.h>

namespace lockstep::shm {

inline constexpr std::size_t kCacheLine = 64;
inline constexpr std::size_t kPage = 4096;
inline constexpr int kMaxRanks = 256;  ///< the largest group on one host
/// The largest number of chunks by which a rank may be ahead of the slowest rank's `released`.
inline constexpr std::uint32_t kRing = 16;
/// Staging slots per rank. While a chunk is copied out of one slot, the next ones are filled.
inline constexpr std::uint32_t kSlots = 4;

/// Outputs of at least this many bytes are written with streaming stores, because they would not
/// stay in the caches.
inline constexpr std::size_t kStreamedBytes = std::size_t{4} << 20;

/// What a rank does in one chunk. Peers compare it with their own description.
struct ChunkDescription {
  CallDescription call;
  std::uint64_t number = 0;  ///< number of the call among the group's collectives
  /// The offset in bytes of a staged chunk in its piece, or of an in-place piece in its segment.
  std::uint64_t offset = 0;
  std::uint32_t segment = 0;  ///< id of the symmetric memory used in place; 0 if staged
  bool at_own_piece = false;  ///< whether an all_gather's input is this rank's piece of its output
  bool operator==(const ChunkDescription&) const = default;
};

/// A 64-bit hash. Two different descriptions collide with probability 2^-64.
std::uint64_t fingerprint(const ChunkDescription& chunk);
std::uint64_t mix(std::uint64_t hash, std::uint64_t value);

/// The call number of the engine's internal collectives.
inline constexpr std::uint64_t kInternalCall = ~std::uint64_t{0};

/// Formats a chunk as "all_reduce[float32, 4] (operation 17)". `before` and `after` surround the
/// number.
std::string describe(const ChunkDescription& chunk, const char* before = " (operation ",
                     const char* after = ")");

/// A rank's last point-to-point call, protected by a sequence lock. A read is consistent if
/// `version` was even and equal before and after it. The words are atomic so that a concurrent
/// write is not a data race.
struct LastTransfer {
  static constexpr std::size_t kWords = (sizeof(CallDescription) + 7) / 8;
  std::atomic<std::uint32_t> version;
  std::array<std::atomic<std::uint64_t>, kWords> words;

  /// Only the rank itself writes, one thread at a time.
  void write(const CallDescription& call);
  /// Nullopt if the rank has made no such call or is writing it at this moment.
  std::optional<CallDescription> read() const;
};

/// What one rank publishes when it arrives at one chunk.
struct alignas(kCacheLine) Arrival {
  static constexpr std::size_t kInlineBytes = 4 * kCacheLine + 48;
  Word count;  ///< chunks that the rank has arrived at, including this one
  std::uint32_t padding;
  std::uint64_t history;  ///< fingerprint of all ChunkDescriptions up to and including this one
  std::byte data[kInlineBytes];
};
static_assert(sizeof(Arrival) == 5 * kCacheLine);

struct alignas(kCacheLine) RankState {
  Word worked;
  Word released;
  Word sleepers;      ///< number of ranks that sleep on this rank's words; 0: no wake-up needed
  Word left;          ///< 1 once this rank has left the group in an orderly way
  Word arrived;       ///< for error messages only; the protocol reads Arrival::count
  Word sharing_cost;  ///< see SharingCost
  std::atomic<std::int32_t> pid;
  std::array<Arrival, kRing> arrivals;
  std::array<ChunkDescription, kRing> chunks;
  LastTransfer last_transfer;

  Arrival& arrival(std::uint32_t sequence) { return arrivals[sequence % kRing]; }
};

/// The counters of one direction between two ranks: a ring of bytes with one writer and one reader.
struct alignas(kCacheLine) Channel {
  Word written;                   ///< bytes that the sender has written
  Word written_sleepers;          ///< 1 while the receiver sleeps on `written`
  alignas(kCacheLine) Word read;  ///< bytes that the receiver has read
  Word read_sleepers;             ///< 1 while the sender sleeps on `read`
};

/// The first reason why the group ended. `state`: 0 running, 1 being written, 2 ended.
struct alignas(kCacheLine) AbortState {
  Word state;
  std::uint32_t rank;
  std::uint32_t late;  ///< 1 if a deadline expired
  char reason[1000];
};

struct alignas(kCacheLine) ControlHeader {
  std::uint64_t nonce[2];  ///< proves that both sides look at the same memory
  AbortState abort;
};

/// The layout of a group's control segment: header, RankState[size], Channel[size][size], staging
/// slots, channel rings. Zeroed memory is the initial state. Each page is first touched by the rank
/// that writes it, so the kernel places it on that rank's NUMA node.
class Control {
 public:
  static std::size_t bytes(int size, std::size_t slot_bytes);

  Control(std::byte* memory, int size, std::size_t slot_bytes);

  ControlHeader& header() const { return *std::launder(reinterpret_cast<ControlHeader*>(memory_)); }
  RankState& state(int rank) const {
    return std::launder(reinterpret_cast<RankState*>(memory_ + sizeof(ControlHeader)))[rank];
  }
  std::byte* slot(int rank, std::uint32_t index) const;
  Channel& channel(int from, int to) const;
  std::byte* ring(int from, int to) const;
  std::size_t ring_bytes() const { return ring_bytes_; }
  std::size_t slot_bytes() const { return slot_bytes_; }
  int size() const { return size_; }

 private:
  std::byte* memory_;
  int size_;
  std::size_t slot_bytes_;
  std::size_t ring_bytes_;
};

/// a - b for counters that wrap around.
inline std::int32_t counter_difference(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::int32_t>(a - b);
}

}  // namespace lockstep::shm
