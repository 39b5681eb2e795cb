#include <lockstep/comm/backends/shm/engine.h>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <lockstep/core/error.h>

namespace lockstep::shm {
namespace {

// Called under the engine's lock. Peers may read `shared` at any time.
void publish_last_transfer(LastTransfer& shared, const CallDescription& call) {
  std::array<std::uint64_t, LastTransfer::kWords> words{};
  std::memcpy(words.data(), &call, sizeof(call));
  const std::uint32_t version = shared.version.load(std::memory_order_relaxed);
  shared.version.store(version + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  for (std::size_t i = 0; i < words.size(); ++i) {
    shared.words[i].store(words[i], std::memory_order_relaxed);
  }
  shared.version.store(version + 2, std::memory_order_release);
}

}  // namespace

std::size_t Engine::control_bytes(int size, const EngineOptions& options) {
  return Control::bytes(size, options.slot_bytes);
}

Engine::Engine(std::shared_ptr<Segment> control, int rank, int size, EngineOptions options)
    : memory_(std::move(control)),
      control_(memory_->data(), size, options.slot_bytes),
      rank_(rank),
      size_(size),
      options_(std::move(options)),
      stages_(control_, rank),
      sharing_cost_(control_.state(rank).sharing_cost),
      channels_(control_, rank, sharing_cost_, options_.world_ranks) {
  LOCKSTEP_CHECK(size <= kMaxRanks, "a group on one host has at most ", kMaxRanks, " ranks, got ",
                 size);
  LOCKSTEP_CHECK(memory_->bytes() >= control_bytes(size, options_));
  control_.state(rank).pid.store(getpid(), std::memory_order_relaxed);
  const std::size_t outgoing = static_cast<std::size_t>(size) * control_.ring_bytes();
  if (size > 1) madvise(control_.ring(rank, 0), outgoing, MADV_POPULATE_WRITE);
}

Engine::~Engine() {
  // Wake peers that sleep on this rank's words, so that they notice that it has left.
  control_.state(rank_).left.store(1, std::memory_order_seq_cst);
  wake_all(rank_);
}

// Errors are ignored: kernels before 5.14 do not support MADV_POPULATE_READ and map the pages on
// first access.
void Engine::map_incoming() const {
  for (int peer = 0; peer < size_; ++peer) {
    if (peer != rank_)
      madvise(control_.ring(peer, rank_), control_.ring_bytes(), MADV_POPULATE_READ);
  }
}

void Engine::watch(const std::vector<pid_t>& pids) { liveness_.emplace(pids); }

// --- Posting -------------------------------------------------------------------------------------

Engine::Ticket Engine::post(const CallDescription& call, std::uint64_t number,
                            const std::byte* input, std::byte* output,
                            std::shared_ptr<const void> keep_alive) {
  const Request request{call, number, input, output};
  auto place = place_to_use(request);
  const std::scoped_lock lock(mutex_);
  throw_if_aborted();
  post_chunks(request, std::move(place), std::move(keep_alive));
  advance_locked();
  return posted_;
}

void Engine::run(const CallDescription& call, std::uint64_t number, const std::byte* input,
                 std::byte* output, std::chrono::milliseconds timeout,
                 const std::function<void()>& meanwhile) {
  try {
    run_unguarded({call, number, input, output}, timeout, meanwhile);
  } catch (...) {
    // The caller may free its memory now, so this engine must not access it any more.
    {
      const std::scoped_lock lock(mutex_);
      failed_ = true;
    }
    abort(str(rank_name(rank_), " failed in ", describe(call)));  // a no-op if already aborted
    throw;
  }
}

void Engine::run_unguarded(const Request& request, std::chrono::milliseconds timeout,
                           const std::function<void()>& meanwhile) {
  constexpr int kLooks = 64;
  auto place = place_to_use(request);
  Ticket ticket = 0;
  {
    const std::scoped_lock lock(mutex_);
    throw_if_aborted();
    // Poll briefly before waking sleeping peers, because checking for sleepers takes as long as
    // polling a peer. Do not poll if a peer may need this processor or messages may arrive.
    const int looks = options_.patience.spin.count() == 0 || !channels_.idle() ? 0 : kLooks;
    if (looks > 0 && !place && can_run_tiny(request)) {
      if (run_tiny(request, looks, meanwhile)) return wake_sleepers();
    } else {
      post_chunks(request, std::move(place), nullptr);
      advance_all();
      meanwhile();
    }
    ticket = posted_;
    for (int look = 0; look < looks && released_ != ticket; ++look) {
      cpu_relax();
      advance_all();
    }
    wake_sleepers();
    if (released_ == ticket) return;
  }
  wait(ticket, timeout);
}

bool Engine::can_run_tiny(const Request& request) {
  const CallDescription& call = request.call;
  const std::size_t most =
      std::min({Arrival::kInlineBytes, options_.small_bytes, options_.slot_bytes});
  return call.kind == CallKind::kAllReduce && call.type == DataType::kFloat32 &&
         call.op == ReduceOp::kSum && request.piece_bytes > 0 && request.piece_bytes <= most &&
         posted_ == released_ && all_released(posted_ + 1 - kRing);
}

// All stages of one inline chunk in straight-line code, because the time to sum a few numbers is
// dominated by the number of instructions. Returns false if a peer has not arrived; the chunk is
// then in the queue and completes in the regular stages.
bool Engine::run_tiny(const Request& request, int looks, const std::function<void()>& meanwhile) {
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
      fail(disagreement(sequence, rank));
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

std::optional<SymmetricPlace> Engine::place_to_use(const Request& request) const {
  return request.piece_bytes < options_.in_place_bytes ? std::nullopt : find_place(request);
}

// The symmetric place of the ranks' inputs, if they can be used without a copy.
std::optional<SymmetricPlace> Engine::find_place(const Request& request) const {
  const auto ranks = static_cast<std::size_t>(size_);
  switch (request.call.kind) {
    case CallKind::kReduceScatter:
    case CallKind::kAllToAll:
      return registry_.find(request.input, ranks * request.piece_bytes);
    case CallKind::kAllGather:
      if (request.input == request.output + static_cast<std::size_t>(rank_) * request.piece_bytes) {
        return registry_.find(request.output, ranks * request.piece_bytes);
      }
      return registry_.find(request.input, request.piece_bytes);
    case CallKind::kBroadcast:
    case CallKind::kReduce:
    case CallKind::kAllReduce:
    case CallKind::kGather:
      return registry_.find(request.input, request.piece_bytes);
    default:
      return std::nullopt;  // only the root of a scatter knows the place of its input
  }
}

Chunk& Engine::push(const Request& request, std::size_t offset, std::size_t bytes) {
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

void Engine::post_chunks(const Request& request, std::optional<SymmetricPlace> place,
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
      chunk_bytes(kind, size_, options_.slot_bytes, element_size(request.call.type));
  for (std::size_t offset = 0; offset < request.piece_bytes; offset += most) {
    Chunk& chunk = push(request, offset, std::min(most, request.piece_bytes - offset));
    chunk.small = chunk.bytes <= options_.small_bytes;
    chunk.keep_alive = keep_alive;
    if (Stages::is_inline(chunk)) continue;
    chunk.staged = true;
    chunk.slot = next_slot_;
    chunk.slot_free_at = slot_free_at_[next_slot_];
    slot_free_at_[next_slot_] = posted_;
    next_slot_ = (next_slot_ + 1) % kSlots;
  }
}

std::shared_ptr<Transfer> Engine::post(const CallDescription& call, int tag, std::byte* data,
                                       std::shared_ptr<const void> keep_alive,
                                       std::uint32_t fingerprint) {
  auto transfer = std::make_shared<Transfer>();
  transfer->call = call;
  transfer->tag = tag;
  transfer->fingerprint = fingerprint;
  transfer->data = data;
  transfer->bytes = call.count * element_size(call.type);
  transfer->keep_alive = std::move(keep_alive);
  const std::scoped_lock lock(mutex_);
  throw_if_aborted();
  publish_last_transfer(control_.state(rank_).last_transfer, call);
  channels_.post(transfer);
  advance_locked();
  return transfer;
}

// --- The three stages ----------------------------------------------------------------------------

bool Engine::advance() noexcept {
  try {
    const std::scoped_lock lock(mutex_);
    return advance_locked();
  } catch (const std::exception&) {
    return false;  // a later wait in this group throws the reason
  }
}

bool Engine::advance_locked() {
  throw_if_aborted();
  const bool moved = advance_all();
  if (!published_.empty()) wake_sleepers();
  return moved;
}

bool Engine::advance_all() {
  bool moved = false;
  for (bool again = true; again;) {
    again = try_arrive();
    again = try_work() || again;
    again = try_release() || again;
    again = advance_channels() || again;
    moved = moved || again;
  }
  return moved;
}

// The first rank among `others` whose word has not reached `wanted`.
template <class WordOf>
std::optional<Engine::Blocker> Engine::find_blocker(Stages::Others others, int root,
                                                    const WordOf& word_of, std::uint32_t wanted,
                                                    const char* verb) const {
  if (others == Stages::Others::kNobody) return std::nullopt;
  const bool one = others == Stages::Others::kRoot;
  for (int peer = one ? root : 0; peer < (one ? root + 1 : size_); ++peer) {
    if (peer == rank_) continue;
    Word& word = word_of(control_.state(peer));
    const std::uint32_t seen = word.load(std::memory_order_acquire);
    if (counter_difference(seen, wanted) < 0) return Blocker{peer, &word, seen, verb};
  }
  return std::nullopt;
}

std::optional<Engine::Blocker> Engine::not_arrived(const Chunk& chunk) const {
  const auto word = [&](RankState& state) -> Word& { return state.arrival(chunk.sequence).count; };
  return find_blocker(stages_.before_work(chunk), chunk.description.call.root, word,
                      chunk.sequence + 1, "arrive at");
}

std::optional<Engine::Blocker> Engine::not_worked(const Chunk& chunk) const {
  const auto word = [](RankState& state) -> Word& { return state.worked; };
  return find_blocker(stages_.before_release(chunk), chunk.description.call.root, word,
                      chunk.sequence + 1, "finish its share of");
}

std::optional<Engine::Blocker> Engine::not_released(std::uint32_t wanted) const {
  const auto word = [](RankState& state) -> Word& { return state.released; };
  return find_blocker(Stages::Others::kAll, -1, word, wanted,
                      "take the result of an operation before");
}

// Reads the peers' `released` again only when the cached minimum is too low, because each owner
// writes that cache line all the time.
bool Engine::all_released(std::uint32_t wanted) {
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
std::optional<Engine::Blocker> Engine::blocker() const {
  if (released_ != worked_) return not_worked(pending_.at(released_));
  if (worked_ != arrived_) return not_arrived(pending_.at(worked_));
  if (arrived_ == posted_) return std::nullopt;
  return not_released(chunks_before(pending_.at(arrived_)));
}

bool Engine::try_arrive() {
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

bool Engine::try_work() {
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

bool Engine::try_release() {
  if (released_ == worked_) return false;
  const Chunk& current = pending_.at(released_);
  if (not_worked(current)) return false;
  stages_.release(current);
  pending_.pop();
  publish(control_.state(rank_).released, ++released_);
  return true;
}

bool Engine::advance_channels() {
  if (channels_.idle()) return false;
  std::string mismatch;
  const bool moved = channels_.advance(mismatch);
  if (!mismatch.empty()) fail(mismatch);
  return moved;
}

void Engine::publish(Word& word, std::uint32_t value) {
  word.store(value, std::memory_order_release);
  published_.push_back(&word);
}

// A peer adds itself to `sleepers`, reads the word one last time and then sleeps. Both ranks access
// `sleepers` by an atomic read-modify-write, so one of them is first: either this rank sees the
// sleeper, or the peer sees the published value. `sleepers` is read once for all published words,
// because the read has to wait for their stores.
void Engine::wake_sleepers() {
  if (control_.state(rank_).sleepers.fetch_add(0, std::memory_order_seq_cst) != 0) {
    for (Word* word : published_) futex_wake_all(*word);
  }
  published_.clear();
}

// Checks that the peers that this rank waited for have published the same operation for this chunk.
void Engine::compare(const Chunk& chunk, Stages::Others others) {
  if (others == Stages::Others::kNobody) return;
  const std::uint64_t mine = control_.state(rank_).arrival(chunk.sequence).history;
  const bool one = others == Stages::Others::kRoot;
  const int first = one ? chunk.description.call.root : 0;
  for (int peer = first; peer < (one ? first + 1 : size_); ++peer) {
    if (peer == rank_ || control_.state(peer).arrival(chunk.sequence).history == mine) continue;
    fail(disagreement(chunk.sequence, peer));
  }
  if (chunk.bytes < SharingCost::kLeastBytes) return;
  const int peer = one ? first : rank_ == 0 ? size_ - 1 : 0;
  if (peer != rank_) sharing_cost_.note(&control_.state(peer).chunks[chunk.sequence % kRing]);
}

// Describes the latest chunk for which the peer published a different operation. It may be an
// earlier chunk: a rank that waited for no peer, such as the root of a broadcast, did not compare.
std::string Engine::disagreement(std::uint32_t sequence, int peer) const {
  RankState& mine = control_.state(rank_);
  RankState& theirs = control_.state(peer);
  for (std::uint32_t back = 0; back < kRing; ++back) {
    const std::uint32_t chunk = sequence - back;
    const bool is_kept = theirs.arrival(chunk).count.load(std::memory_order_acquire) == chunk + 1 &&
                         mine.arrival(chunk).count.load(std::memory_order_relaxed) == chunk + 1;
    const ChunkDescription& own = mine.chunks[chunk % kRing];
    const ChunkDescription& other = theirs.chunks[chunk % kRing];
    if (!is_kept || own == other) continue;
    return str("the ranks do not call the same: ", rank_name(rank_), " called ",
               describe(own, " as number ", ""), ", ", rank_name(peer), " called ",
               describe(other, " as number ", ""));
  }
  return str("the ranks do not call the same: ", rank_name(rank_), " and ", rank_name(peer),
             " called different things before ",
             describe(mine.chunks[sequence % kRing], " as number ", ""));
}

// A rank that only sends, such as the root of a broadcast, takes the cost from a reading peer.
bool Engine::should_stream(const Chunk& chunk) const {
  if (size_ == 1 || chunk.bytes < SharingCost::kLeastBytes) return false;
  const auto others = static_cast<std::uint32_t>(size_ - 1);
  const int reader = (rank_ + 1 + static_cast<int>(chunk.sequence % others)) % size_;
  return SharingCost::is_dear(control_.state(rank_).sharing_cost) ||
         SharingCost::is_dear(control_.state(reader).sharing_cost);
}

// --- Ending --------------------------------------------------------------------------------------

namespace {

constexpr std::uint32_t kRunning = 0;
constexpr std::uint32_t kAborting = 1;
constexpr std::uint32_t kAborted = 2;

}  // namespace

void Engine::abort(const std::string& reason, bool late) {
  AbortState& shared = control_.header().abort;
  std::uint32_t expected = kRunning;
  if (!shared.state.compare_exchange_strong(expected, kAborting)) return;
  shared.rank = static_cast<std::uint32_t>(rank_);
  shared.late = late ? 1 : 0;
  const std::size_t length = std::min(reason.size(), sizeof(shared.reason) - 1);
  std::memcpy(shared.reason, reason.data(), length);
  shared.reason[length] = '\0';
  shared.state.store(kAborted, std::memory_order_seq_cst);
  for (int peer = 0; peer < size_; ++peer) wake_all(peer);
}

// Wakes all threads that sleep on a word of `rank`.
void Engine::wake_all(int rank) const {
  RankState& state = control_.state(rank);
  if (state.sleepers.load(std::memory_order_seq_cst) != 0) {
    for (Word* word : {&state.worked, &state.released}) futex_wake_all(*word);
    for (Arrival& arrival : state.arrivals) futex_wake_all(arrival.count);
  }
  for (int peer = 0; peer < size_; ++peer) {
    Channel& out = control_.channel(rank, peer);
    Channel& in = control_.channel(peer, rank);
    if (out.written_sleepers.load(std::memory_order_seq_cst) != 0) futex_wake_all(out.written);
    if (in.read_sleepers.load(std::memory_order_seq_cst) != 0) futex_wake_all(in.read);
  }
}

void Engine::throw_if_aborted() {
  const AbortState& shared = control_.header().abort;
  if (shared.state.load(std::memory_order_acquire) != kAborted) [[likely]] {
    // Another rank may be writing its reason, or may have died while writing it.
    if (failed_.load(std::memory_order_relaxed)) throw CommError("the group has ended");
    return;
  }
  failed_ = true;
  const int rank = static_cast<int>(shared.rank);
  const std::string reason =
      rank == rank_ ? shared.reason : str(rank_name(rank), " ended the group: ", shared.reason);
  if (shared.late != 0) throw TimeoutError(reason);
  throw CommError(reason);
}

void Engine::fail(const std::string& reason) {
  failed_ = true;
  abort(reason);
  throw CommError(reason);
}

void Engine::throw_if_ended() {
  throw_if_aborted();
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_ || !died(peer)) continue;
    {
      const std::scoped_lock lock(mutex_);  // wait until no other thread is moving data
      failed_ = true;
    }
    fail(why_gone(peer));
  }
}

void Engine::check() {
  throw_if_ended();
  // A rank that left has completed its part, and peers may still have to read it. The group is
  // therefore not aborted.
  for (int peer = 0; peer < size_; ++peer) {
    const std::string gone = peer == rank_ ? "" : why_gone(peer);
    if (!gone.empty()) throw CommError(gone);
  }
}

}  // namespace lockstep::shm
