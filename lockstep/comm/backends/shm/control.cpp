#include <lockstep/comm/backends/shm/control.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

#include <lockstep/core/strings.h>

namespace lockstep::shm {
namespace {

constexpr std::size_t round_up(std::size_t value, std::size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Large enough that sender and receiver can work at the same time, small enough that the rings of
// all pairs together stay in the caches: 512 KiB for two ranks, 16 KiB for 64. A power of two, so
// that positions in the ring stay continuous when the 32-bit counters of bytes wrap around.
std::size_t ring_bytes_for(int size) {
  const std::size_t ranks = std::bit_ceil(static_cast<std::size_t>(std::max(size, 2)));
  return std::max((std::size_t{1} << 20) / ranks, std::size_t{16} << 10);
}

std::size_t channels_at(std::size_t ranks) {
  return sizeof(ControlHeader) + ranks * sizeof(RankState);
}
std::size_t slots_at(std::size_t ranks) {
  return round_up(channels_at(ranks) + ranks * ranks * sizeof(Channel), kPage);
}
std::size_t rings_at(std::size_t ranks, std::size_t slot_bytes) {
  return slots_at(ranks) + round_up(ranks * kSlots * slot_bytes, kPage);
}

}  // namespace

std::string describe(const ChunkDescription& chunk, const char* before, const char* after) {
  if (chunk.number == kInternalCall) return "allocate";
  return str(describe(chunk.call), chunk.segment != 0 ? " in symmetric memory" : "", before,
             chunk.number, after);
}

void LastTransfer::write(const CallDescription& call) {
  std::array<std::uint64_t, kWords> copy{};
  std::memcpy(copy.data(), &call, sizeof(call));
  const std::uint32_t before = version.load(std::memory_order_relaxed);
  version.store(before + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  for (std::size_t i = 0; i < copy.size(); ++i) words[i].store(copy[i], std::memory_order_relaxed);
  version.store(before + 2, std::memory_order_release);
}

std::optional<CallDescription> LastTransfer::read() const {
  std::array<std::uint64_t, kWords> copy{};
  const std::uint32_t before = version.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < copy.size(); ++i) copy[i] = words[i].load(std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (before == 0 || before % 2 != 0 || version.load(std::memory_order_relaxed) != before) {
    return std::nullopt;
  }
  CallDescription call;
  std::memcpy(static_cast<void*>(&call), copy.data(), sizeof(call));
  return call;
}

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15;
  return hash ^ (hash >> 32);
}

// Multiplies each field by its own factor, so that the processor can run the multiplications in
// parallel: the fingerprint is computed before the counter that peers wait for is published.
std::uint64_t fingerprint(const ChunkDescription& chunk) {
  constexpr std::uint64_t kStep = 0xD6E8FEB86659FD93;
  std::uint64_t sum = 0;
  std::uint64_t factor = 0x9E3779B97F4A7C15;
  const auto add = [&](std::uint64_t value) {
    const std::uint64_t product = value * factor;
    sum += product ^ (product >> 32);
    factor += 2 * kStep;  // odd, so that no difference is lost
  };
  const CallDescription& call = chunk.call;
  add(static_cast<std::uint64_t>(call.kind) | static_cast<std::uint64_t>(call.type) << 8 |
      static_cast<std::uint64_t>(call.op.kind) << 16 | std::uint64_t{chunk.at_own_piece} << 24 |
      static_cast<std::uint64_t>(static_cast<std::uint32_t>(call.root)) << 32);
  add(std::bit_cast<std::uint64_t>(call.op.factor));
  add(call.count);
  add(chunk.number);
  add(chunk.offset);
  add(chunk.segment | static_cast<std::uint64_t>(call.shape.dimensions) << 32 |
      std::uint64_t{call.shape.channels_last} << 40 |
      static_cast<std::uint64_t>(call.algorithm) << 48);
  for (std::size_t i = 0; i < Shape::kPlaces; i += 2) {
    add(call.shape.sizes[i] | static_cast<std::uint64_t>(call.shape.sizes[i + 1]) << 32);
  }
  return sum;
}

std::size_t Control::bytes(int size, std::size_t slot_bytes) {
  const auto ranks = static_cast<std::size_t>(size);
  return rings_at(ranks, slot_bytes) + ranks * ranks * ring_bytes_for(size);
}

Control::Control(std::byte* memory, int size, std::size_t slot_bytes)
    : memory_(memory), size_(size), slot_bytes_(slot_bytes), ring_bytes_(ring_bytes_for(size)) {}

Channel& Control::channel(int from, int to) const {
  const auto ranks = static_cast<std::size_t>(size_);
  return std::launder(reinterpret_cast<Channel*>(memory_ + channels_at(ranks)))[from * size_ + to];
}

std::byte* Control::slot(int rank, std::uint32_t index) const {
  const auto ranks = static_cast<std::size_t>(size_);
  return memory_ + slots_at(ranks) +
         (static_cast<std::size_t>(rank) * kSlots + index) * slot_bytes_;
}

std::byte* Control::ring(int from, int to) const {
  const auto ranks = static_cast<std::size_t>(size_);
  return memory_ + rings_at(ranks, slot_bytes_) +
         (static_cast<std::size_t>(from) * ranks + static_cast<std::size_t>(to)) * ring_bytes_;
}

}  // namespace lockstep::shm
