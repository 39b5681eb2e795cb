#include <lockstep/comm/backends/shm/engine.h>

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include <lockstep/core/error.h>

namespace lockstep::shm {
namespace {

// Written by one thread under the engine's lock, read by peers at any time.
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
      channels_(control_, rank) {
  LOCKSTEP_CHECK(size <= kMaxRanks, "a group on one host has at most ", kMaxRanks, " ranks, got ", size);
  LOCKSTEP_CHECK(memory_->bytes() >= control_bytes(size, options_));
  control_.state(rank).pid.store(getpid(), std::memory_order_relaxed);
}

Engine::~Engine() {
  // A peer that sleeps on one of our words must look again and find that we are gone.
  RankState& mine = control_.state(rank_);
  mine.left.store(1, std::memory_order_release);
  for (Word* word : {&mine.arrived, &mine.worked, &mine.released}) futex_wake_all(*word);
  for (int peer = 0; peer < size_; ++peer) {
    futex_wake_all(control_.channel(rank_, peer).written);
    futex_wake_all(control_.channel(peer, rank_).read);
  }
}

void Engine::watch(const std::vector<pid_t>& pids) { liveness_.emplace(pids); }

// --- Posting -------------------------------------------------------------------------------------

Engine::Ticket Engine::post(const CallDescription& call, std::uint64_t number, const std::byte* input,
                            std::byte* output, std::shared_ptr<const void> keep_alive) {
  const std::size_t piece_bytes = call.count * element_size(call.type);
  Operation whole;
  whole.description.call = call;
  whole.description.number = number;
  whole.input = input;
  whole.output = output;
  whole.stride = piece_bytes;
  whole.keep_alive = std::move(keep_alive);
  if (piece_bytes > options_.small_bytes) whole.place = find_place(whole, piece_bytes);
  const std::scoped_lock lock(mutex_);
  throw_if_aborted();
  post_chunks(std::move(whole), piece_bytes);
  advance_locked();
  return posted_;
}

// Where all ranks' inputs lie, if they can be used without a copy.
std::optional<SymmetricPlace> Engine::find_place(const Operation& whole, std::size_t piece_bytes) const {
  const auto ranks = static_cast<std::size_t>(size_);
  switch (whole.description.call.kind) {
    case CallKind::kReduceScatter:
    case CallKind::kAllToAll: return registry_.find(whole.input, ranks * piece_bytes);
    case CallKind::kAllGather:
      if (whole.input == whole.output + static_cast<std::size_t>(rank_) * piece_bytes) {
        return registry_.find(whole.output, ranks * piece_bytes);
      }
      return registry_.find(whole.input, piece_bytes);
    case CallKind::kBroadcast:
    case CallKind::kReduce:
    case CallKind::kAllReduce:
    case CallKind::kGather: return registry_.find(whole.input, piece_bytes);
    default: return std::nullopt;  // only the root of a scatter knows where its input is
  }
}

void Engine::post_chunks(Operation whole, std::size_t piece_bytes) {
  const CallKind kind = whole.description.call.kind;
  if (piece_bytes == 0 || whole.place) {
    whole.bytes = piece_bytes;
    if (whole.place) {
      whole.description.segment = whole.place->range->id;
      whole.description.offset = whole.place->offset;
      whole.description.at_own_piece =
          kind == CallKind::kAllGather &&
          whole.input == whole.output + static_cast<std::size_t>(rank_) * piece_bytes;
    }
    pending_.push_back(std::move(whole));
    ++posted_;
    return;
  }
  const std::size_t most = chunk_bytes(kind, size_, options_.slot_bytes,
                                       element_size(whole.description.call.type));
  for (std::size_t offset = 0; offset < piece_bytes; offset += most) {
    Operation chunk = whole;
    chunk.description.offset = offset;
    chunk.bytes = std::min(most, piece_bytes - offset);
    chunk.small = chunk.bytes <= options_.small_bytes;
    if (chunk.input != nullptr) chunk.input += offset;
    if (chunk.output != nullptr) chunk.output += offset;
    chunk.slot = next_slot_;
    chunk.slot_free_at = slot_free_at_[next_slot_];
    next_slot_ = (next_slot_ + 1) % kSlots;
    slot_free_at_[chunk.slot] = ++posted_;
    pending_.push_back(std::move(chunk));
  }
}

std::shared_ptr<Transfer> Engine::post(const CallDescription& call, int tag, std::byte* data,
                                       std::shared_ptr<const void> keep_alive) {
  auto transfer = std::make_shared<Transfer>();
  transfer->call = call;
  transfer->tag = tag;
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
    return false;  // whoever waits for this group will meet the reason there
  }
}

bool Engine::advance_locked() {
  throw_if_aborted();
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

// The first rank among `others` whose counter has not reached `wanted`.
std::optional<Engine::Blocker> Engine::find_blocker(Stages::Others others, int root,
                                                    Word RankState::* word, std::uint32_t wanted,
                                                    const char* verb) const {
  if (others == Stages::Others::kNobody) return std::nullopt;
  const bool one = others == Stages::Others::kRoot;
  for (int peer = one ? root : 0; peer < (one ? root + 1 : size_); ++peer) {
    if (peer == rank_) continue;
    Word& counter = control_.state(peer).*word;
    const std::uint32_t seen = counter.load(std::memory_order_acquire);
    if (counter_difference(seen, wanted) < 0) return Blocker{peer, &counter, seen, verb};
  }
  return std::nullopt;
}

// What the oldest chunk waits for, in the order of the stages. Nothing while it can move.
std::optional<Engine::Blocker> Engine::blocker() const {
  if (released_ != worked_) {
    const Operation& oldest = operation(released_);
    return find_blocker(stages_.before_release(oldest), oldest.description.call.root,
                        &RankState::worked, released_ + 1, "finish its share of");
  }
  if (worked_ != arrived_) {
    const Operation& oldest = operation(worked_);
    return find_blocker(stages_.before_work(oldest), oldest.description.call.root, &RankState::arrived,
                        worked_ + 1, "arrive at");
  }
  if (arrived_ == posted_) return std::nullopt;
  if (auto blocked = find_blocker(Stages::Others::kAll, -1, &RankState::released,
                                  arrived_ + 1 - kRing, "take the result of an operation before")) {
    return blocked;
  }
  return find_blocker(Stages::Others::kAll, -1, &RankState::released, operation(arrived_).slot_free_at,
                      "take the result of an operation before");
}

bool Engine::try_arrive() {
  if (arrived_ == posted_) return false;
  const Operation& current = operation(arrived_);
  // The ring entry, and the slot, must not be in use any more by an earlier chunk.
  const bool staged = current.bytes > 0 && !current.place;
  const std::uint32_t oldest = arrived_ + 1 - kRing;
  const std::uint32_t wanted =
      staged && counter_difference(current.slot_free_at, oldest) > 0 ? current.slot_free_at : oldest;
  if (find_blocker(Stages::Others::kAll, -1, &RankState::released, wanted, "")) return false;
  stages_.arrive(current);
  RankState& mine = control_.state(rank_);
  mine.chunks[arrived_ % kRing] = current.description;
  publish(mine.arrived, ++arrived_);
  return true;
}

bool Engine::try_work() {
  if (worked_ == arrived_) return false;
  const Operation& current = operation(worked_);
  const Stages::Others others = stages_.before_work(current);
  const int root = current.description.call.root;
  if (find_blocker(others, root, &RankState::arrived, worked_ + 1, "")) return false;
  compare(worked_, others);
  stages_.work(current);
  ++worked_;
  if (stages_.work_is_awaited(current)) publish(control_.state(rank_).worked, worked_);
  return true;
}

bool Engine::try_release() {
  if (released_ == worked_) return false;
  const Operation& current = operation(released_);
  if (find_blocker(stages_.before_release(current), current.description.call.root, &RankState::worked,
                   released_ + 1, "")) {
    return false;
  }
  stages_.release(current);
  pending_.pop_front();
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
  // seq_cst: this store must not pass the load of `sleepers`, or a peer that just fell asleep would
  // not be woken (the peer counts itself before it looks at the word for the last time).
  word.store(value, std::memory_order_seq_cst);
  if (control_.state(rank_).sleepers.load(std::memory_order_seq_cst) != 0) futex_wake_all(word);
}

// Those who have been waited for say what they do in this chunk; it must be what we do.
void Engine::compare(std::uint32_t sequence, Stages::Others others) {
  if (others == Stages::Others::kNobody) return;
  const ChunkDescription& mine = operation(sequence).description;
  const bool one = others == Stages::Others::kRoot;
  const int first = one ? mine.call.root : 0;
  for (int peer = first; peer < (one ? first + 1 : size_); ++peer) {
    if (peer == rank_) continue;
    const ChunkDescription& theirs = control_.state(peer).chunks[sequence % kRing];
    if (theirs == mine) continue;
    fail(str("ranks disagree: ", rank_name(rank_), " called ", describe(mine), ", ", rank_name(peer),
             " called ", describe(theirs)));
  }
}

// --- Ending --------------------------------------------------------------------------------------

namespace {

constexpr std::uint32_t kRunning = 0;
constexpr std::uint32_t kAborting = 1;
constexpr std::uint32_t kAborted = 2;

}  // namespace

void Engine::abort(const std::string& reason) {
  AbortState& shared = control_.header().abort;
  std::uint32_t expected = kRunning;
  if (!shared.state.compare_exchange_strong(expected, kAborting)) return;
  shared.rank = static_cast<std::uint32_t>(rank_);
  const std::size_t length = std::min(reason.size(), sizeof(shared.reason) - 1);
  std::memcpy(shared.reason, reason.data(), length);
  shared.reason[length] = '\0';
  shared.state.store(kAborted, std::memory_order_release);
  for (int peer = 0; peer < size_; ++peer) {
    RankState& theirs = control_.state(peer);
    for (Word* word : {&theirs.arrived, &theirs.worked, &theirs.released}) futex_wake_all(*word);
    for (int other = 0; other < size_; ++other) {
      futex_wake_all(control_.channel(peer, other).written);
      futex_wake_all(control_.channel(peer, other).read);
    }
  }
}

void Engine::throw_if_aborted() {
  const AbortState& shared = control_.header().abort;
  if (shared.state.load(std::memory_order_acquire) != kAborted) [[likely]] {
    // Another rank may be about to write its reason, or have died over it.
    if (failed_.load(std::memory_order_relaxed)) throw CommError("the group has ended");
    return;
  }
  failed_ = true;
  const int rank = static_cast<int>(shared.rank);
  if (rank == rank_) throw CommError(shared.reason);
  throw CommError(str(rank_name(rank), " ended the group: ", shared.reason));
}

void Engine::fail(const std::string& reason) {
  failed_ = true;
  abort(reason);
  throw CommError(reason);
}

void Engine::check() {
  throw_if_aborted();
  for (int peer = 0; peer < size_; ++peer) {
    const std::string gone = peer == rank_ ? "" : why_gone(peer);
    if (!gone.empty()) fail(gone);
  }
}

}  // namespace lockstep::shm
