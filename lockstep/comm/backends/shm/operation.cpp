#include <lockstep/comm/backends/shm/operation.h>

#include <algorithm>
#include <array>
#include <cstring>

#include <lockstep/comm/kernels/copy.h>
#include <lockstep/comm/kernels/reduce.h>

namespace lockstep::shm {
namespace {

bool gives_a_part_to_each(CallKind kind) {
  return kind == CallKind::kScatter || kind == CallKind::kReduceScatter ||
         kind == CallKind::kAllToAll;
}

// When a call works in place, source and destination are the same memory.
void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, bytes);
}

// Copies into memory that only peers read, with streaming stores if transfers between the
// processors' caches are slow.
void copy_stage(std::byte* to, const std::byte* from, const Operation& operation,
                std::size_t bytes) {
  operation.streamed ? copy_streaming(to, from, bytes) : copy_bytes(to, from, bytes);
}

void copy_out(std::byte* to, const std::byte* from, std::size_t bytes, std::size_t whole) {
  if (whole < kStreamedBytes) return copy_bytes(to, from, bytes);
  if (to != from) copy_streaming(to, from, bytes);
}

std::size_t round_down(std::size_t value, std::size_t multiple) {
  return value / multiple * multiple;
}

}  // namespace

std::size_t chunk_bytes(CallKind kind, int size, std::size_t slot_bytes,
                        std::size_t element_bytes) {
  if (!gives_a_part_to_each(kind)) return round_down(slot_bytes, element_bytes);
  return round_down(round_down(slot_bytes / static_cast<std::size_t>(size), kCacheLine),
                    element_bytes);
}

bool Stages::is_root(const Operation& operation) const {
  return operation.description.call.root == rank_;
}

bool Stages::two_stages(const Operation& operation) const {
  const CallKind kind = operation.description.call.kind;
  return (kind == CallKind::kAllReduce || kind == CallKind::kReduce) && !operation.small;
}

// The part of a chunk that `rank` combines. It consists of whole cache lines, so that no two ranks
// write to the same line.
Stages::Range Stages::share(const Operation& operation, int rank) const {
  const auto ranks = static_cast<std::size_t>(size_);
  const std::size_t lines = (operation.bytes + kCacheLine - 1) / kCacheLine;
  const std::size_t per_rank = (lines + ranks - 1) / ranks * kCacheLine;
  const std::size_t begin = std::min(operation.bytes, static_cast<std::size_t>(rank) * per_rank);
  return {begin, std::min(operation.bytes - begin, per_rank)};
}

// The distance in bytes between the parts for consecutive ranks in a staging slot.
std::size_t Stages::part_bytes() const {
  return round_down(control_.slot_bytes() / static_cast<std::size_t>(size_), kCacheLine);
}

// The data that `rank` contributes to this rank (or to all ranks) in this chunk.
const std::byte* Stages::given(const Operation& operation, int rank) const {
  const bool parts = gives_a_part_to_each(operation.description.call.kind);
  const auto me = static_cast<std::size_t>(rank_);
  const auto them = static_cast<std::size_t>(rank);
  if (rank == rank_) return operation.input + (parts ? me * operation.stride : 0);
  if (operation.place) {
    const std::size_t piece = parts ? me : operation.description.at_own_piece ? them : 0;
    return operation.place->range->slice(rank) + operation.place->offset + piece * operation.stride;
  }
  return staging(operation, rank) + (parts ? me * part_bytes() : 0);
}

// Where `rank` stages its contribution. A small one is stored next to the counter that announces
// it.
std::byte* Stages::staging(const Operation& operation, int rank) const {
  return is_inline(operation) ? control_.state(rank).arrival(operation.sequence).data
                              : control_.slot(rank, operation.slot);
}

bool Stages::is_inline(const Operation& operation) {
  return operation.small && operation.bytes <= Arrival::kInlineBytes &&
         !gives_a_part_to_each(operation.description.call.kind);
}

void Stages::arrive(const Operation& operation) const {
  if (operation.place || operation.bytes == 0) return;
  std::byte* const slot = staging(operation, rank_);
  switch (operation.description.call.kind) {
    case CallKind::kBroadcast:
      if (is_root(operation)) copy_stage(slot, operation.input, operation, operation.bytes);
      return;
    case CallKind::kGather:
      if (!is_root(operation)) copy_stage(slot, operation.input, operation, operation.bytes);
      return;
    case CallKind::kAllGather:
      return copy_stage(slot, operation.input, operation, operation.bytes);
    case CallKind::kReduce:
    case CallKind::kAllReduce:
      if (operation.small) return copy_stage(slot, operation.input, operation, operation.bytes);
      // This rank's own share is combined directly from its input.
      for (int peer = 0; peer < size_; ++peer) {
        const Range theirs = share(operation, peer);
        if (peer == rank_) continue;
        copy_stage(slot + theirs.begin, operation.input + theirs.begin, operation, theirs.bytes);
      }
      return;
    case CallKind::kScatter:
      if (!is_root(operation)) return;
      [[fallthrough]];
    case CallKind::kReduceScatter:
    case CallKind::kAllToAll:
      for (int peer = 0; peer < size_; ++peer) {
        const auto p = static_cast<std::size_t>(peer);
        if (peer == rank_) continue;
        copy_stage(slot + p * part_bytes(), operation.input + p * operation.stride, operation,
                   operation.bytes);
      }
      return;
    case CallKind::kBarrier:
    case CallKind::kSend:
    case CallKind::kRecv:
      return;
  }
}

void Stages::expect(const Operation& operation) const {
  // For all peers together. More would slow down a peer that is still writing its data.
  constexpr std::size_t kMostBytes = 256;
  const auto peers = static_cast<std::size_t>(size_ - 1);
  if (!operation.staged || operation.bytes * peers > kMostBytes) return;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    const std::byte* const data = given(operation, peer);
    for (std::size_t at = 0; at < operation.bytes; at += kCacheLine) __builtin_prefetch(data + at);
  }
}

Stages::Others Stages::before_work(const Operation& operation) const {
  switch (operation.description.call.kind) {
    case CallKind::kBroadcast:
      if (operation.place) return Others::kAll;
      [[fallthrough]];
    case CallKind::kScatter:
      return is_root(operation) ? Others::kNobody : Others::kRoot;
    case CallKind::kGather:
      return is_root(operation) ? Others::kAll : Others::kNobody;
    case CallKind::kReduce:
      return is_root(operation) || !operation.small ? Others::kAll : Others::kNobody;
    default:
      return Others::kAll;
  }
}

void Stages::work(const Operation& operation) const {
  if (operation.bytes == 0) return;
  switch (operation.description.call.kind) {
    case CallKind::kBroadcast:
      if (operation.place) return copy_between(operation);
      [[fallthrough]];
    case CallKind::kScatter:
      return copy_out(operation.output, given(operation, operation.description.call.root),
                      operation.bytes, operation.stride);
    case CallKind::kGather:
      if (is_root(operation)) take_pieces(operation);
      return;
    case CallKind::kAllGather:
    case CallKind::kAllToAll:
      return take_pieces(operation);
    case CallKind::kReduce:
      if (operation.small && !is_root(operation)) return;
      [[fallthrough]];
    case CallKind::kAllReduce:
      return operation.small ? combine(operation) : combine_share(operation);
    case CallKind::kReduceScatter:
      return combine(operation);
    case CallKind::kBarrier:
    case CallKind::kSend:
    case CallKind::kRecv:
      return;
  }
}

Stages::Others Stages::before_release(const Operation& operation) const {
  const CallKind kind = operation.description.call.kind;
  if (operation.place) {
    // Peers may still be reading this rank's memory.
    if (kind == CallKind::kGather) return is_root(operation) ? Others::kNobody : Others::kRoot;
    return Others::kAll;
  }
  if (!two_stages(operation) || operation.bytes == 0) return Others::kNobody;
  return kind == CallKind::kAllReduce || is_root(operation) ? Others::kAll : Others::kNobody;
}

bool Stages::work_is_awaited(const Operation& operation) const {
  return operation.place.has_value() || two_stages(operation);
}

void Stages::release(const Operation& operation) const {
  if (operation.place || operation.bytes == 0 || !two_stages(operation)) return;
  if (operation.description.call.kind == CallKind::kReduce && !is_root(operation)) return;
  for (int peer = 0; peer < size_; ++peer) {
    const Range theirs = share(operation, peer);
    if (peer == rank_ || theirs.bytes == 0) continue;
    copy_bytes(operation.output + theirs.begin, control_.slot(peer, operation.slot) + theirs.begin,
               theirs.bytes);
  }
}

void Stages::take_pieces(const Operation& operation) const {
  for (int peer = 0; peer < size_; ++peer) {
    copy_out(operation.output + static_cast<std::size_t>(peer) * operation.stride,
             given(operation, peer), operation.bytes,
             operation.stride * static_cast<std::size_t>(size_));
  }
}

// In a symmetric broadcast among N ranks, each rank reads (N - 1) / N of the piece from the root,
// and the root writes the remaining 1 / N to each rank. All ranks therefore copy the same amount in
// parallel.
void Stages::copy_between(const Operation& operation) const {
  const auto ranks = static_cast<std::size_t>(size_);
  const std::size_t taken = round_down(operation.bytes / ranks * (ranks - 1), kCacheLine);
  const SymmetricPlace& place = *operation.place;
  if (!is_root(operation)) {
    return copy_out(operation.output, given(operation, operation.description.call.root), taken,
                    operation.stride);
  }
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    copy_out(place.range->slice(peer) + place.offset + taken, operation.input + taken,
             operation.bytes - taken, operation.stride);
  }
}

void Stages::combine(const Operation& operation) const {
  std::array<const std::byte*, kMaxRanks> sources;
  for (int peer = 0; peer < size_; ++peer) sources[peer] = given(operation, peer);
  reduce_into(operation, sources.data(), &operation.output, 1, operation.bytes);
}

void Stages::combine_share(const Operation& operation) const {
  const Range mine = share(operation, rank_);
  if (mine.bytes == 0) return;
  std::array<const std::byte*, kMaxRanks> sources;
  for (int peer = 0; peer < size_; ++peer) sources[peer] = given(operation, peer) + mine.begin;
  const bool all = operation.description.call.kind == CallKind::kAllReduce;
  if (!operation.place) return combine_staged_share(operation, sources.data(), mine, all);
  std::array<std::byte*, kMaxRanks> destinations;
  std::size_t count = 0;
  for (int peer = 0; peer < size_; ++peer) {
    if (!all && peer != operation.description.call.root) continue;
    destinations[count++] =
        operation.place->range->slice(peer) + operation.place->offset + mine.begin;
  }
  reduce_into(operation, sources.data(), destinations.data(), count, mine.bytes);
}

// Combines this rank's share into its output, if it receives one, and into its slot for the peers.
void Stages::combine_staged_share(const Operation& operation, const std::byte* const* sources,
                                  Range mine, bool all) const {
  std::byte* const own = operation.output + mine.begin;
  std::byte* const shared = control_.slot(rank_, operation.slot) + mine.begin;
  if (all && operation.streamed) {
    // The blocks are small enough to be still in the cache when they are copied.
    constexpr std::size_t kBlock = 4096;
    std::array<const std::byte*, kMaxRanks> block;
    for (std::size_t at = 0; at < mine.bytes; at += kBlock) {
      const std::size_t bytes = std::min(kBlock, mine.bytes - at);
      for (int peer = 0; peer < size_; ++peer) block[peer] = sources[peer] + at;
      std::byte* const to = own + at;
      reduce_into(operation, block.data(), &to, 1, bytes);
      copy_streaming(shared + at, to, bytes);
    }
    return;
  }
  const std::array<std::byte*, 2> both{own, shared};
  const bool only_shared = !all && !is_root(operation);
  reduce_into(operation, sources, both.data() + (only_shared ? 1 : 0), all ? 2 : 1, mine.bytes);
}

void Stages::reduce_into(const Operation& operation, const std::byte* const* sources,
                         std::byte* const* destinations, std::size_t destination_count,
                         std::size_t bytes) const {
  const CallDescription& call = operation.description.call;
  reduce({sources, static_cast<std::size_t>(size_)}, {destinations, destination_count},
         bytes / element_size(call.type), call.type, call.op);
}

}  // namespace lockstep::shm
