// The shared memory that the ranks of a group synchronise through: who has come how far.
//
// The chunks of a group's collectives are numbered: the first is 0. Each rank publishes, in words
// that only grow and only it writes, how many chunks it has
//
//   arrived at   made its input of visible,
//   worked on    done its share of the work of that others wait for,
//   released     taken the result of; their staging slot may be used again.
//
// "All arrived at k" allows to work on k, "all worked on k" allows to take the result. That is the
// whole protocol: no locks, one writer for each word, and as many chunks in flight as fit into the
// ring of arrivals. Counters wrap around; they are compared by signed difference.
//
// A small collective takes few cache lines from each rank to each other, a very small one one: an
// Arrival holds the word that says so, what the rank is doing, and the data.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

#include <lockstep/comm/call/description.h>
#include <lockstep/comm/waiting/futex.h>

namespace lockstep::shm {

inline constexpr std::size_t kCacheLine = 64;
inline constexpr std::size_t kPage = 4096;
inline constexpr int kMaxRanks = 256;  ///< of a group on one host
/// Chunks that a rank may have arrived at before the slowest rank has released them.
inline constexpr std::uint32_t kRing = 16;
/// Staged chunks in flight: while one is being taken out, the next ones are being put in.
inline constexpr std::uint32_t kSlots = 4;

/// An output from this size on, which nothing has read before, is in no cache: it is written past
/// them.
inline constexpr std::size_t kStreamedBytes = std::size_t{4} << 20;

/// A rank's operation in one chunk, which peers compare with their own.
struct ChunkDescription {
  CallDescription call;
  std::uint64_t number = 0;  ///< of the call, among the group's collectives
  std::uint64_t offset =
      0;  ///< of the chunk in one rank's piece, or of the piece in its segment: bytes
  std::uint32_t segment = 0;  ///< symmetric memory that is used in place; 0: staged
  bool at_own_piece = false;  ///< an all_gather whose input is its own place in the output
  bool operator==(const ChunkDescription&) const = default;
};

/// Equal for equal descriptions; different for different ones but for a chance of 2^-64.
std::uint64_t fingerprint(const ChunkDescription& chunk);
std::uint64_t mix(std::uint64_t hash, std::uint64_t value);

/// The number of calls that are the engine's own.
inline constexpr std::uint64_t kInternalCall = ~std::uint64_t{0};

/// "all_reduce[float32, 4] (operation 17)"; the number with what is said before and after it.
std::string describe(const ChunkDescription& chunk, const char* before = " (operation ",
                     const char* after = ")");

/// What a rank last did point-to-point, readable at any time: whole where `version` is even and the
/// same before and after. Its words are atomics so that a reader at a bad moment is no data race.
struct LastTransfer {
  static constexpr std::size_t kWords = (sizeof(CallDescription) + 7) / 8;
  std::atomic<std::uint32_t> version;
  std::array<std::atomic<std::uint64_t>, kWords> words;
};

/// One rank at one chunk.
struct alignas(kCacheLine) Arrival {
  static constexpr std::size_t kInlineBytes = 4 * kCacheLine + 48;
  Word count;  ///< chunks arrived at, this one included
  std::uint32_t padding;
  std::uint64_t history;  ///< fingerprint of all ChunkDescriptions up to this one
  std::byte data[kInlineBytes];
};
static_assert(sizeof(Arrival) == 5 * kCacheLine);

struct alignas(kCacheLine) RankState {
  Word worked;
  Word released;
  Word sleepers;      ///< ranks that sleep on one of this rank's words; it wakes them only if any
  Word left;          ///< 1 when this rank left the group in an orderly way
  Word arrived;       ///< for messages; the arrivals are what counts
  Word sharing_cost;  ///< see SharingCost
  std::atomic<std::int32_t> pid;
  std::array<Arrival, kRing> arrivals;
  std::array<ChunkDescription, kRing> chunks;
  LastTransfer last_transfer;

  Arrival& arrival(std::uint32_t sequence) { return arrivals[sequence % kRing]; }
};

/// One direction between two ranks: a ring of bytes with one writer and one reader.
struct alignas(kCacheLine) Channel {
  Word written;                   ///< bytes put in, by the sender
  Word written_sleepers;          ///< 1 while the receiver sleeps
  alignas(kCacheLine) Word read;  ///< bytes taken out, by the receiver
  Word read_sleepers;
};

/// The first reason why the group ended. `state`: 0 running, 1 being written, 2 ended.
struct alignas(kCacheLine) AbortState {
  Word state;
  std::uint32_t rank;
  std::uint32_t late;  ///< it was a deadline
  char reason[1000];
};

struct alignas(kCacheLine) ControlHeader {
  std::uint64_t nonce[2];  ///< proves that both sides look at the same memory
  AbortState abort;
};

/// Where things lie in the control segment of a group: header, RankState[size],
/// Channel[size][size], staging slots, channel rings. Zeroed memory is its initial state. A page is
/// touched first by the rank that writes it, which puts it on that rank's memory node.
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
