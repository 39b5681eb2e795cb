#include <lockstep/comm/backends/shm/chunk.h>

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
void copy_stage(std::byte* to, const std::byte* from, const Chunk& chunk, std::size_t bytes) {
  chunk.streamed ? comm::copy_streaming(to, from, bytes) : copy_bytes(to, from, bytes);
}

void copy_out(std::byte* to, const std::byte* from, std::size_t bytes, std::size_t whole) {
  if (whole < kStreamedBytes) return copy_bytes(to, from, bytes);
  if (to != from) comm::copy_streaming(to, from, bytes);
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

bool ChunkStages::is_root(const Chunk& chunk) const { return chunk.description.call.root == rank_; }

bool ChunkStages::two_stages(const Chunk& chunk) const {
  const CallKind kind = chunk.description.call.kind;
  return (kind == CallKind::kAllReduce || kind == CallKind::kReduce) && !chunk.small;
}

// The part of a chunk that `rank` combines. It consists of whole cache lines, so that no two ranks
// write to the same line.
ChunkStages::Range ChunkStages::share(const Chunk& chunk, int rank) const {
  const auto ranks = static_cast<std::size_t>(size_);
  const std::size_t lines = (chunk.bytes + kCacheLine - 1) / kCacheLine;
  const std::size_t per_rank = (lines + ranks - 1) / ranks * kCacheLine;
  const std::size_t begin = std::min(chunk.bytes, static_cast<std::size_t>(rank) * per_rank);
  return {begin, std::min(chunk.bytes - begin, per_rank)};
}

// The distance in bytes between the parts for consecutive ranks in a staging slot.
std::size_t ChunkStages::part_bytes() const {
  return round_down(control_.slot_bytes() / static_cast<std::size_t>(size_), kCacheLine);
}

// The data that `rank` contributes to this rank (or to all ranks) in this chunk.
const std::byte* ChunkStages::given(const Chunk& chunk, int rank) const {
  const bool parts = gives_a_part_to_each(chunk.description.call.kind);
  const auto me = static_cast<std::size_t>(rank_);
  const auto them = static_cast<std::size_t>(rank);
  if (rank == rank_) return chunk.input + (parts ? me * chunk.stride : 0);
  if (chunk.place) {
    const std::size_t piece = parts ? me : chunk.description.at_own_piece ? them : 0;
    return chunk.place->allocation->slice(rank) + chunk.place->offset + piece * chunk.stride;
  }
  return staging(chunk, rank) + (parts ? me * part_bytes() : 0);
}

// Where `rank` stages its contribution. A small one is stored next to the counter that announces
// it.
std::byte* ChunkStages::staging(const Chunk& chunk, int rank) const {
  return is_inline(chunk) ? control_.state(rank).arrival(chunk.sequence).data
                          : control_.slot(rank, chunk.slot);
}

bool ChunkStages::is_inline(const Chunk& chunk) {
  return chunk.small && chunk.bytes <= Arrival::kInlineBytes &&
         !gives_a_part_to_each(chunk.description.call.kind);
}

void ChunkStages::arrive(const Chunk& chunk) const {
  if (chunk.place || chunk.bytes == 0) return;
  std::byte* const slot = staging(chunk, rank_);
  switch (chunk.description.call.kind) {
    case CallKind::kBroadcast:
      if (is_root(chunk)) copy_stage(slot, chunk.input, chunk, chunk.bytes);
      return;
    case CallKind::kGather:
      if (!is_root(chunk)) copy_stage(slot, chunk.input, chunk, chunk.bytes);
      return;
    case CallKind::kAllGather:
      return copy_stage(slot, chunk.input, chunk, chunk.bytes);
    case CallKind::kReduce:
    case CallKind::kAllReduce:
      if (chunk.small) return copy_stage(slot, chunk.input, chunk, chunk.bytes);
      // This rank's own share is combined directly from its input.
      for (int peer = 0; peer < size_; ++peer) {
        const Range theirs = share(chunk, peer);
        if (peer == rank_) continue;
        copy_stage(slot + theirs.begin, chunk.input + theirs.begin, chunk, theirs.bytes);
      }
      return;
    case CallKind::kScatter:
      if (!is_root(chunk)) return;
      [[fallthrough]];
    case CallKind::kReduceScatter:
    case CallKind::kAllToAll:
      for (int peer = 0; peer < size_; ++peer) {
        const auto p = static_cast<std::size_t>(peer);
        if (peer == rank_) continue;
        copy_stage(slot + p * part_bytes(), chunk.input + p * chunk.stride, chunk, chunk.bytes);
      }
      return;
    case CallKind::kBarrier:
    case CallKind::kSend:
    case CallKind::kRecv:
      return;
  }
}

void ChunkStages::expect(const Chunk& chunk) const {
  // For all peers together. More would slow down a peer that is still writing its data.
  constexpr std::size_t kMostBytes = 256;
  const auto peers = static_cast<std::size_t>(size_ - 1);
  if (!chunk.staged || chunk.bytes * peers > kMostBytes) return;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    const std::byte* const data = given(chunk, peer);
    for (std::size_t at = 0; at < chunk.bytes; at += kCacheLine) __builtin_prefetch(data + at);
  }
}

ChunkStages::Others ChunkStages::before_work(const Chunk& chunk) const {
  switch (chunk.description.call.kind) {
    case CallKind::kBroadcast:
      if (chunk.place) return Others::kAll;
      [[fallthrough]];
    case CallKind::kScatter:
      return is_root(chunk) ? Others::kNobody : Others::kRoot;
    case CallKind::kGather:
      return is_root(chunk) ? Others::kAll : Others::kNobody;
    case CallKind::kReduce:
      return is_root(chunk) || !chunk.small ? Others::kAll : Others::kNobody;
    default:
      return Others::kAll;
  }
}

void ChunkStages::work(const Chunk& chunk) const {
  if (chunk.bytes == 0) return;
  switch (chunk.description.call.kind) {
    case CallKind::kBroadcast:
      if (chunk.place) return copy_between(chunk);
      [[fallthrough]];
    case CallKind::kScatter:
      return copy_out(chunk.output, given(chunk, chunk.description.call.root), chunk.bytes,
                      chunk.stride);
    case CallKind::kGather:
      if (is_root(chunk)) take_pieces(chunk);
      return;
    case CallKind::kAllGather:
    case CallKind::kAllToAll:
      return take_pieces(chunk);
    case CallKind::kReduce:
      if (chunk.small && !is_root(chunk)) return;
      [[fallthrough]];
    case CallKind::kAllReduce:
      return chunk.small ? combine(chunk) : combine_share(chunk);
    case CallKind::kReduceScatter:
      return combine(chunk);
    case CallKind::kBarrier:
    case CallKind::kSend:
    case CallKind::kRecv:
      return;
  }
}

ChunkStages::Others ChunkStages::before_release(const Chunk& chunk) const {
  const CallKind kind = chunk.description.call.kind;
  if (chunk.place) {
    // Peers may still be reading this rank's memory.
    if (kind == CallKind::kGather) return is_root(chunk) ? Others::kNobody : Others::kRoot;
    return Others::kAll;
  }
  if (!two_stages(chunk) || chunk.bytes == 0) return Others::kNobody;
  return kind == CallKind::kAllReduce || is_root(chunk) ? Others::kAll : Others::kNobody;
}

bool ChunkStages::work_is_awaited(const Chunk& chunk) const {
  return chunk.place.has_value() || two_stages(chunk);
}

void ChunkStages::release(const Chunk& chunk) const {
  if (chunk.place || chunk.bytes == 0 || !two_stages(chunk)) return;
  if (chunk.description.call.kind == CallKind::kReduce && !is_root(chunk)) return;
  for (int peer = 0; peer < size_; ++peer) {
    const Range theirs = share(chunk, peer);
    if (peer == rank_ || theirs.bytes == 0) continue;
    copy_bytes(chunk.output + theirs.begin, control_.slot(peer, chunk.slot) + theirs.begin,
               theirs.bytes);
  }
}

void ChunkStages::take_pieces(const Chunk& chunk) const {
  for (int peer = 0; peer < size_; ++peer) {
    copy_out(chunk.output + static_cast<std::size_t>(peer) * chunk.stride, given(chunk, peer),
             chunk.bytes, chunk.stride * static_cast<std::size_t>(size_));
  }
}

// In a symmetric broadcast among N ranks, each rank reads (N - 1) / N of the piece from the root,
// and the root writes the remaining 1 / N to each rank. All ranks therefore copy the same amount in
// parallel.
void ChunkStages::copy_between(const Chunk& chunk) const {
  const auto ranks = static_cast<std::size_t>(size_);
  const std::size_t taken = round_down(chunk.bytes / ranks * (ranks - 1), kCacheLine);
  const SymmetricPlace& place = *chunk.place;
  if (!is_root(chunk)) {
    return copy_out(chunk.output, given(chunk, chunk.description.call.root), taken, chunk.stride);
  }
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    copy_out(place.allocation->slice(peer) + place.offset + taken, chunk.input + taken,
             chunk.bytes - taken, chunk.stride);
  }
}

void ChunkStages::combine(const Chunk& chunk) const {
  std::array<const std::byte*, kMaxRanks> sources;
  for (int peer = 0; peer < size_; ++peer) sources[peer] = given(chunk, peer);
  reduce_into(chunk, sources.data(), &chunk.output, 1, chunk.bytes);
}

void ChunkStages::combine_share(const Chunk& chunk) const {
  const Range mine = share(chunk, rank_);
  if (mine.bytes == 0) return;
  std::array<const std::byte*, kMaxRanks> sources;
  for (int peer = 0; peer < size_; ++peer) sources[peer] = given(chunk, peer) + mine.begin;
  const bool all = chunk.description.call.kind == CallKind::kAllReduce;
  if (!chunk.place) return combine_staged_share(chunk, sources.data(), mine, all);
  std::array<std::byte*, kMaxRanks> destinations;
  std::size_t count = 0;
  for (int peer = 0; peer < size_; ++peer) {
    if (!all && peer != chunk.description.call.root) continue;
    destinations[count++] = chunk.place->allocation->slice(peer) + chunk.place->offset + mine.begin;
  }
  reduce_into(chunk, sources.data(), destinations.data(), count, mine.bytes);
}

// Combines this rank's share into its output, if it receives one, and into its slot for the peers.
void ChunkStages::combine_staged_share(const Chunk& chunk, const std::byte* const* sources,
                                       Range mine, bool all) const {
  std::byte* const own = chunk.output + mine.begin;
  std::byte* const shared = control_.slot(rank_, chunk.slot) + mine.begin;
  if (all && chunk.streamed) {
    // The blocks are small enough to be still in the cache when they are copied.
    constexpr std::size_t kBlock = 4096;
    std::array<const std::byte*, kMaxRanks> block;
    for (std::size_t at = 0; at < mine.bytes; at += kBlock) {
      const std::size_t bytes = std::min(kBlock, mine.bytes - at);
      for (int peer = 0; peer < size_; ++peer) block[peer] = sources[peer] + at;
      std::byte* const to = own + at;
      reduce_into(chunk, block.data(), &to, 1, bytes);
      comm::copy_streaming(shared + at, to, bytes);
    }
    return;
  }
  const std::array<std::byte*, 2> both{own, shared};
  const bool only_shared = !all && !is_root(chunk);
  reduce_into(chunk, sources, both.data() + (only_shared ? 1 : 0), all ? 2 : 1, mine.bytes);
}

void ChunkStages::reduce_into(const Chunk& chunk, const std::byte* const* sources,
                              std::byte* const* destinations, std::size_t destination_count,
                              std::size_t bytes) const {
  const CallDescription& call = chunk.description.call;
  comm::reduce({sources, static_cast<std::size_t>(size_)}, {destinations, destination_count},
               bytes / detail::element_size(call.type), call.type, call.op);
}

}  // namespace lockstep::shm
