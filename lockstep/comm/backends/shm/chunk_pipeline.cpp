#include <lockstep/comm/backends/shm/chunk_pipeline.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include <lockstep/core/strings.h>

namespace lockstep::shm {

ChunkPipeline::ChunkPipeline(const Control& control, int rank, std::size_t small_bytes,
                             SharingCost& sharing_cost, GroupEnd& end)
    : control_(control),
      rank_(rank),
      size_(control.size()),
      small_bytes_(small_bytes),
      stages_(control, rank),
      sharing_cost_(sharing_cost),
      end_(end) {}

// --- Posting -------------------------------------------------------------------------------------

Chunk& ChunkPipeline::push(const CollectiveRequest& request, std::size_t offset,
                           std::size_t bytes) {
  Chunk& chunk = pending_.push();
  ++posted_;
  chunk.description.call = request.call;
  chunk.description.number = request.number;
  chunk.description.offset = offset;
  chunk.input = request.input == nullptr ? nullptr : request.input + offset;
  chunk.output = request.output == nullptr ? nullptr : request.output + offset;
  chunk.bytes = bytes;
  chunk.stride = request.piece_bytes;
  return chunk;
}

void ChunkPipeline::post(const CollectiveRequest& request, std::optional<SymmetricPlace> place,
                         std::shared_ptr<const void> keep_alive) {
  const CallKind kind = request.call.kind;
  if (request.piece_bytes == 0 || place) {
    Chunk& whole = push(request, 0, request.piece_bytes);
    whole.keep_alive = std::move(keep_alive);
    if (!place) return;
    whole.description.segment = place->allocation->id;
    whole.description.offset = place->offset;
    whole.description.at_own_piece =
        kind == CallKind::kAllGather &&
        request.input == request.output + static_cast<std::size_t>(rank_) * request.piece_bytes;
    whole.place = std::move(place);
    return;
  }
  const std::size_t most =
      chunk_bytes(kind, size_, control_.slot_bytes(), detail::element_size(request.call.type));
  for (std::size_t offset = 0; offset < request.piece_bytes; offset += most) {
    Chunk& chunk = push(request, offset, std::min(most, request.piece_bytes - offset));
    chunk.small = chunk.bytes <= small_bytes_;
    chunk.keep_alive = keep_alive;
    if (ChunkStages::is_inline(chunk)) continue;
    chunk.staged = true;
    chunk.slot = next_slot_;
    chunk.slot_free_at = slot_free_at_[next_slot_];
    slot_free_at_[next_slot_] = posted_;
    next_slot_ = (next_slot_ + 1) % kSlots;
  }
}

bool ChunkPipeline::can_run_tiny(const CollectiveRequest& request) {
  const CallDescription& call = request.call;
  const std::size_t most = std::min({Arrival::kInlineBytes, small_bytes_, control_.slot_bytes()});
  return call.kind == CallKind::kAllReduce && call.type == detail::DataType::kFloat32 &&
         call.op == ReduceOp::kSum && request.piece_bytes > 0 && request.piece_bytes <= most &&
         posted_ == released_ && all_released(posted_ + 1 - kRing);
}

// Straight-line code, because the time to sum a few numbers is dominated by the number of
// instructions.
bool ChunkPipeline::run_tiny(const CollectiveRequest& request, int looks,
                             const std::function<void()>& meanwhile) {
  constexpr std::size_t kMostFloats = Arrival::kInlineBytes / sizeof(float);
  const std::uint32_t sequence = posted_;
  RankState& mine = control_.state(rank_);
  ChunkDescription& description = mine.chunks[sequence % kRing];
  description = {.call = request.call, .number = request.number};
  history_ = mix(history_, fingerprint(description));
  Arrival& arrival = mine.arrival(sequence);
  std::memcpy(arrival.data, request.input, request.piece_bytes);
  arrival.history = history_;
  publish(arrival.count, ++arrived_);
  mine.arrived.store(arrived_, std::memory_order_release);
  meanwhile();

  const auto all_have_come = [&] {
    for (int peer = 0; peer < size_; ++peer) {
      const Word& count = control_.state(peer).arrival(sequence).count;
      if (counter_difference(count.load(std::memory_order_acquire), arrived_) < 0) return false;
    }
    return true;
  };
  while (!all_have_come()) {
    if (looks-- > 0) {
      cpu_relax();
      continue;
    }
    push(request, 0, request.piece_bytes).small = true;
    return false;
  }

  std::array<float, kMostFloats> sum;
  std::array<float, kMostFloats> given;
  const std::size_t count = request.piece_bytes / sizeof(float);
  for (int rank = 0; rank < size_; ++rank) {
    const Arrival& theirs = control_.state(rank).arrival(sequence);
    if (theirs.history != history_) {
      push(request, 0, request.piece_bytes).small = true;
      end_.fail(disagreement(sequence, rank));
    }
    std::memcpy((rank == 0 ? sum : given).data(), theirs.data, request.piece_bytes);
    if (rank == 0) continue;
    for (std::size_t i = 0; i < count; ++i) sum[i] += given[i];
  }
  std::memcpy(request.output, sum.data(), request.piece_bytes);
  pending_.skip();
  ++posted_;
  mine.worked.store(++worked_, std::memory_order_release);
  publish(mine.released, ++released_);
  return true;
}

// --- The three stages ----------------------------------------------------------------------------

bool ChunkPipeline::advance() {
  bool moved = try_arrive();
  moved = try_work() || moved;
  return try_release() || moved;
}

// The first rank among `others` whose word has not reached `wanted`.
template <class WordOf>
std::optional<ChunkPipeline::Blocker> ChunkPipeline::find_blocker(ChunkStages::Others others,
                                                                  int root, const WordOf& word_of,
                                                                  std::uint32_t wanted,
                                                                  const char* verb) const {
  if (others == ChunkStages::Others::kNobody) return std::nullopt;
  const bool one = others == ChunkStages::Others::kRoot;
  for (int peer = one ? root : 0; peer < (one ? root + 1 : size_); ++peer) {
    if (peer == rank_) continue;
    Word& word = word_of(control_.state(peer));
    const std::uint32_t seen = word.load(std::memory_order_acquire);
    if (counter_difference(seen, wanted) < 0) return Blocker{peer, &word, seen, verb};
  }
  return std::nullopt;
}

std::optional<ChunkPipeline::Blocker> ChunkPipeline::not_arrived(const Chunk& chunk) const {
  const auto word = [&](RankState& state) -> Word& { return state.arrival(chunk.sequence).count; };
  return find_blocker(stages_.before_work(chunk), chunk.description.call.root, word,
                      chunk.sequence + 1, "arrive at");
}

std::optional<ChunkPipeline::Blocker> ChunkPipeline::not_worked(const Chunk& chunk) const {
  const auto word = [](RankState& state) -> Word& { return state.worked; };
  return find_blocker(stages_.before_release(chunk), chunk.description.call.root, word,
                      chunk.sequence + 1, "finish its share of");
}

std::optional<ChunkPipeline::Blocker> ChunkPipeline::not_released(std::uint32_t wanted) const {
  const auto word = [](RankState& state) -> Word& { return state.released; };
  return find_blocker(ChunkStages::Others::kAll, -1, word, wanted,
                      "take the result of an operation before");
}

// Reads the peers' `released` again only when the cached minimum is too low, because each owner
// writes that cache line all the time.
bool ChunkPipeline::all_released(std::uint32_t wanted) {
  if (counter_difference(all_released_, wanted) >= 0) return true;
  std::uint32_t fewest = released_;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    const std::uint32_t seen = control_.state(peer).released.load(std::memory_order_acquire);
    if (counter_difference(seen, fewest) < 0) fewest = seen;
  }
  all_released_ = fewest;
  return counter_difference(fewest, wanted) >= 0;
}

namespace {

// The number of chunks that all ranks must have released before this chunk can arrive, so that its
// entry in the ring of arrivals and its slot are no longer in use.
std::uint32_t chunks_before(const Chunk& chunk) {
  const std::uint32_t ring = chunk.sequence + 1 - kRing;
  // `slot_free_at` of a slot that has not been used recently may be arbitrarily old and is then
  // ignored.
  const bool slot_is_later = chunk.sequence - chunk.slot_free_at < kRing - 1;
  return chunk.staged && slot_is_later ? chunk.slot_free_at : ring;
}

}  // namespace

// The condition that blocks the oldest chunk, checked in the order of the stages; nullopt if the
// chunk can advance.
std::optional<ChunkPipeline::Blocker> ChunkPipeline::blocker() const {
  if (released_ != worked_) return not_worked(pending_.at(released_));
  if (worked_ != arrived_) return not_arrived(pending_.at(worked_));
  if (arrived_ == posted_) return std::nullopt;
  return not_released(chunks_before(pending_.at(arrived_)));
}

bool ChunkPipeline::try_arrive() {
  if (arrived_ == posted_) return false;
  Chunk& current = pending_.at(arrived_);
  if (!all_released(chunks_before(current))) return false;
  current.streamed = should_stream(current);
  RankState& mine = control_.state(rank_);
  mine.chunks[arrived_ % kRing] = current.description;
  // A peer may be polling this cache line, so all stores to it happen close together.
  history_ = mix(history_, fingerprint(current.description));
  Arrival& arrival = mine.arrival(arrived_);
  stages_.arrive(current);
  arrival.history = history_;
  publish(arrival.count, ++arrived_);
  mine.arrived.store(arrived_, std::memory_order_release);
  return true;
}

bool ChunkPipeline::try_work() {
  if (worked_ == arrived_) return false;
  const Chunk& current = pending_.at(worked_);
  stages_.expect(current);
  if (not_arrived(current)) return false;
  compare(current, stages_.before_work(current));
  stages_.work(current);
  Word& worked = control_.state(rank_).worked;
  if (stages_.work_is_awaited(current)) {
    publish(worked, ++worked_);
  } else {
    worked.store(++worked_, std::memory_order_release);
  }
  return true;
}

bool ChunkPipeline::try_release() {
  if (released_ == worked_) return false;
  const Chunk& current = pending_.at(released_);
  if (not_worked(current)) return false;
  stages_.release(current);
  pending_.pop();
  publish(control_.state(rank_).released, ++released_);
  return true;
}

void ChunkPipeline::publish(Word& word, std::uint32_t value) {
  word.store(value, std::memory_order_release);
  published_.push_back(&word);
}

// A peer adds itself to `sleepers`, reads the word one last time and then sleeps. Both ranks access
// `sleepers` by an atomic read-modify-write, so one of them is first: either this rank sees the
// sleeper, or the peer sees the published value. `sleepers` is read once for all published words,
// because the read has to wait for their stores.
void ChunkPipeline::wake_sleepers() {
  if (control_.state(rank_).sleepers.fetch_add(0, std::memory_order_seq_cst) != 0) {
    for (Word* word : published_) futex_wake_all(*word);
  }
  published_.clear();
}

// Checks that the peers that this rank waited for have published the same operation for this chunk.
void ChunkPipeline::compare(const Chunk& chunk, ChunkStages::Others others) {
  if (others == ChunkStages::Others::kNobody) return;
  const std::uint64_t mine = control_.state(rank_).arrival(chunk.sequence).history;
  const bool one = others == ChunkStages::Others::kRoot;
  const int first = one ? chunk.description.call.root : 0;
  for (int peer = first; peer < (one ? first + 1 : size_); ++peer) {
    if (peer == rank_ || control_.state(peer).arrival(chunk.sequence).history == mine) continue;
    end_.fail(disagreement(chunk.sequence, peer));
  }
  if (chunk.bytes < SharingCost::kLeastBytes) return;
  const int peer = one ? first : rank_ == 0 ? size_ - 1 : 0;
  if (peer != rank_) sharing_cost_.note(&control_.state(peer).chunks[chunk.sequence % kRing]);
}

// Describes the latest chunk for which the peer published a different chunk. It may be an
// earlier chunk: a rank that waited for no peer, such as the root of a broadcast, did not compare.
std::string ChunkPipeline::disagreement(std::uint32_t sequence, int peer) const {
  RankState& mine = control_.state(rank_);
  RankState& theirs = control_.state(peer);
  for (std::uint32_t back = 0; back < kRing; ++back) {
    const std::uint32_t chunk = sequence - back;
    const bool is_kept = theirs.arrival(chunk).count.load(std::memory_order_acquire) == chunk + 1 &&
                         mine.arrival(chunk).count.load(std::memory_order_relaxed) == chunk + 1;
    const ChunkDescription& own = mine.chunks[chunk % kRing];
    const ChunkDescription& other = theirs.chunks[chunk % kRing];
    if (!is_kept || own == other) continue;
    return str("the ranks call different operations: ", end_.name(rank_), " called ",
               describe(own, " as number ", ""), ", ", end_.name(peer), " called ",
               describe(other, " as number ", ""));
  }
  return str("the ranks call different operations: ", end_.name(rank_), " and ", end_.name(peer),
             " called different operations before ",
             describe(mine.chunks[sequence % kRing], " as number ", ""));
}

// A rank that only sends, such as the root of a broadcast, takes the cost from a reading peer.
bool ChunkPipeline::should_stream(const Chunk& chunk) const {
  if (size_ == 1 || chunk.bytes < SharingCost::kLeastBytes) return false;
  const auto others = static_cast<std::uint32_t>(size_ - 1);
  const int reader = (rank_ + 1 + static_cast<int>(chunk.sequence % others)) % size_;
  return SharingCost::is_dear(control_.state(rank_).sharing_cost) ||
         SharingCost::is_dear(control_.state(reader).sharing_cost);
}

std::string ChunkPipeline::oldest() const {
  return pending_.size() == 0 ? "no operation" : describe(pending_.at(released_).description);
}

}  // namespace lockstep::shm
