#include <lockstep/comm/backends/shm/engine.h>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <vector>

#include <lockstep/core/error.h>

namespace lockstep::shm {
namespace {

// How often a sleeping rank wakes up to see whether its peers are alive: 50 times a second costs
// nothing and bounds the time to notice a death.
constexpr std::chrono::milliseconds kLivenessInterval{20};

constexpr std::uint32_t kRunning = 0;
constexpr std::uint32_t kAborting = 1;
constexpr std::uint32_t kAborted = 2;

std::size_t round_up(std::size_t value, std::size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// The share of rank `rank` in `count` elements: whole cache lines, so that no two ranks write one.
struct Share {
  std::size_t begin;
  std::size_t end;
};
Share share_of(int rank, int size, std::size_t count, std::size_t element_bytes) {
  const std::size_t ranks = static_cast<std::size_t>(size);
  const std::size_t per_rank =
      round_up((count + ranks - 1) / ranks, std::max<std::size_t>(1, kCacheLine / element_bytes));
  const std::size_t begin = std::min(count, static_cast<std::size_t>(rank) * per_rank);
  return {begin, std::min(count, begin + per_rank)};
}

}  // namespace

std::string describe(const OperationDescription& operation) {
  switch (operation.kind) {
    case OperationKind::kBarrier: return "barrier";
    case OperationKind::kBroadcast:
      return str("broadcast[", operation.count, " bytes, root ", operation.root, "]");
    case OperationKind::kAllReduce:
      return str("all_reduce[", data_type_name(operation.type), ", ", operation.count,
                 operation.op == ReduceOp::kAverage ? ", average" : ", sum",
                 operation.symmetric != 0 ? ", symmetric]" : "]");
  }
  return "?";
}

std::size_t Engine::control_bytes(int size, const EngineOptions& options) {
  const std::size_t ranks = static_cast<std::size_t>(size);
  return sizeof(ControlHeader) + ranks * sizeof(RankState) + ranks * kSlots * options.slot_bytes;
}

Engine::Engine(std::shared_ptr<Segment> control, int rank, int size, const EngineOptions& options)
    : control_(std::move(control)), rank_(rank), size_(size), options_(options) {
  LOCKSTEP_CHECK(control_->bytes() >= control_bytes(size, options));
  state(rank).pid.store(getpid(), std::memory_order_relaxed);
}

Engine::~Engine() {
  // A peer that sleeps on one of our words must look again and find that we are gone.
  state(rank_).left.store(1, std::memory_order_release);
  for (Word* word : {&state(rank_).arrived, &state(rank_).reduced, &state(rank_).released}) {
    futex_wake_all(*word);
  }
}

ControlHeader& Engine::header() const {
  return *std::launder(reinterpret_cast<ControlHeader*>(control_->data()));
}

RankState& Engine::state(int rank) const {
  std::byte* first = control_->data() + sizeof(ControlHeader);
  return std::launder(reinterpret_cast<RankState*>(first))[rank];
}

std::byte* Engine::slot(int rank, std::uint32_t sequence) const {
  std::byte* first = control_->data() + sizeof(ControlHeader) +
                     static_cast<std::size_t>(size_) * sizeof(RankState);
  const std::size_t index = static_cast<std::size_t>(rank) * kSlots + sequence % kSlots;
  return first + index * options_.slot_bytes;
}

void Engine::watch(const std::vector<pid_t>& pids) { liveness_.emplace(pids); }

// --- Posting -------------------------------------------------------------------------------------

Engine::Ticket Engine::post_all_reduce(std::byte* data, std::size_t count, DataType type,
                                       ReduceOp op, std::shared_ptr<const void> keep_alive) {
  return post(data, count * element_size(type),
              {.kind = OperationKind::kAllReduce, .type = type, .op = op, .count = count},
              std::move(keep_alive));
}

Engine::Ticket Engine::post_broadcast(std::byte* data, std::size_t bytes, int root,
                                      std::shared_ptr<const void> keep_alive) {
  return post(data, bytes,
              {.kind = OperationKind::kBroadcast,
               .root = static_cast<std::uint32_t>(root),
               .count = bytes},
              std::move(keep_alive));
}

Engine::Ticket Engine::post_barrier() { return post(nullptr, 0, {}, nullptr); }

Engine::Ticket Engine::post(std::byte* data, std::size_t bytes, OperationDescription description,
                            std::shared_ptr<const void> keep_alive) {
  auto place = bytes > 0 ? registry_.find(data, bytes) : std::nullopt;
  const std::scoped_lock lock(mutex_);
  throw_if_aborted();
  if (bytes == 0 || place) {
    if (place) {
      description.symmetric = 1;
      description.segment = place->range->id;
      description.offset = place->offset;
    }
    pending_.push_back({description, data, bytes, std::move(place), std::move(keep_alive)});
    ++posted_;
  } else {
    for (std::size_t offset = 0; offset < bytes; offset += options_.slot_bytes) {
      description.offset = offset / element_size(description.type);
      pending_.push_back(
          {description, data + offset, std::min(options_.slot_bytes, bytes - offset), {}, keep_alive});
      ++posted_;
    }
  }
  advance();
  return posted_;
}

// --- The three stages ----------------------------------------------------------------------------

bool Engine::advance() {
  throw_if_aborted();
  bool moved = false;
  for (bool again = true; again;) {
    again = try_arrive();
    again = try_reduce() || again;
    again = try_release() || again;
    moved = moved || again;
  }
  return moved;
}

// The first rank whose counter has not reached `wanted`.
std::optional<Engine::Blocker> Engine::find_blocker(Word RankState::* word, std::uint32_t wanted,
                                                    const char* verb) const {
  for (int peer = 0; peer < size_; ++peer) {
    Word& counter = state(peer).*word;
    if (counter_difference(counter.load(std::memory_order_acquire), wanted) < 0) {
      return Blocker{peer, &counter, wanted, verb};
    }
  }
  return std::nullopt;
}

// What the oldest operation waits for, in the order of the stages. Nothing while it can move.
std::optional<Engine::Blocker> Engine::blocker() const {
  if (counter_difference(released_, reduced_) < 0) {
    return find_blocker(&RankState::reduced, released_ + 1, "finish its share of");
  }
  if (counter_difference(reduced_, arrived_) < 0) {
    return find_blocker(&RankState::arrived, reduced_ + 1, "arrive at");
  }
  if (auto blocked = find_blocker(&RankState::reduced, arrived_ + 1 - kRing, "finish its share of")) {
    return blocked;
  }
  return find_blocker(&RankState::released, arrived_ + 1 - kSlots, "take the result of");
}

bool Engine::try_arrive() {
  if (arrived_ == posted_) return false;
  const std::uint32_t sequence = arrived_;
  const Operation& current = operation(sequence);
  // The ring entry, and the slot, must not be in use any more by an earlier operation.
  if (find_blocker(&RankState::reduced, sequence + 1 - kRing, "")) return false;
  const bool staged = current.bytes > 0 && !current.place;
  if (staged) {
    if (find_blocker(&RankState::released, sequence + 1 - kSlots, "")) return false;
    const bool gives = current.description.kind == OperationKind::kAllReduce ||
                       static_cast<int>(current.description.root) == rank_;
    if (gives) std::memcpy(slot(rank_, sequence), current.data, current.bytes);
  }
  state(rank_).operations[sequence % kRing] = current.description;
  publish(state(rank_).arrived, ++arrived_);
  return true;
}

bool Engine::try_reduce() {
  if (reduced_ == arrived_ || find_blocker(&RankState::arrived, reduced_ + 1, "")) return false;
  compare_descriptions(reduced_);
  perform(operation(reduced_), reduced_);
  publish(state(rank_).reduced, ++reduced_);
  return true;
}

void Engine::perform(const Operation& current, std::uint32_t sequence) {
  const OperationDescription& description = current.description;
  if (current.bytes == 0) return;
  const auto base = [&](int rank) {
    return current.place ? current.place->range->slice(rank) + current.place->offset
                         : slot(rank, sequence);
  };
  if (description.kind == OperationKind::kBroadcast) {
    const int root = static_cast<int>(description.root);
    if (rank_ != root) std::memcpy(current.data, base(root), current.bytes);
    return;
  }
  const std::size_t element_bytes = element_size(description.type);
  const Share share = share_of(rank_, size_, current.bytes / element_bytes, element_bytes);
  if (share.begin == share.end) return;
  std::vector<std::byte*> buffers(static_cast<std::size_t>(size_));
  for (int peer = 0; peer < size_; ++peer) buffers[peer] = base(peer) + share.begin * element_bytes;
  std::byte* const own = buffers[rank_];
  const std::span<const std::byte* const> sources(buffers.data(), buffers.size());
  const std::span<std::byte* const> destinations =
      current.place ? std::span<std::byte* const>(buffers) : std::span<std::byte* const>(&own, 1);
  reduce(sources, destinations, share.end - share.begin, description.type, description.op);
}

bool Engine::try_release() {
  if (released_ == reduced_ || find_blocker(&RankState::reduced, released_ + 1, "")) return false;
  const Operation& current = operation(released_);
  const bool staged = current.bytes > 0 && !current.place;
  if (staged && current.description.kind == OperationKind::kAllReduce) {
    const std::size_t element_bytes = element_size(current.description.type);
    for (int peer = 0; peer < size_; ++peer) {
      const Share share = share_of(peer, size_, current.bytes / element_bytes, element_bytes);
      std::memcpy(current.data + share.begin * element_bytes,
                  slot(peer, released_) + share.begin * element_bytes,
                  (share.end - share.begin) * element_bytes);
    }
  }
  pending_.pop_front();
  publish(state(rank_).released, ++released_);
  return true;
}

void Engine::publish(Word& word, std::uint32_t value) {
  // seq_cst: this store must not pass the load of `sleepers`, or a peer that just fell asleep would
  // not be woken (the peer counts itself before it looks at the word for the last time).
  word.store(value, std::memory_order_seq_cst);
  if (state(rank_).sleepers.load(std::memory_order_seq_cst) != 0) futex_wake_all(word);
}

void Engine::compare_descriptions(std::uint32_t sequence) {
  const OperationDescription& mine = operation(sequence).description;
  for (int peer = 0; peer < size_; ++peer) {
    const OperationDescription theirs = state(peer).operations[sequence % kRing];
    if (theirs == mine) continue;
    fail(str("ranks disagree at operation ", sequence, ": rank ", rank_, " called ", describe(mine),
             ", rank ", peer, " called ", describe(theirs)));
  }
}

// --- Waiting -------------------------------------------------------------------------------------

bool Engine::test(Ticket ticket) {
  const std::scoped_lock lock(mutex_);
  if (counter_difference(released_, ticket) >= 0) return true;
  advance();
  return counter_difference(released_, ticket) >= 0;
}

void Engine::wait(Ticket ticket, std::chrono::milliseconds timeout) {
  if (test(ticket)) return;
  const Deadline deadline(timeout);
  for (;;) {
    const auto spin_until = Clock::now() + std::min<Clock::duration>(options_.spin, timeout);
    do {
      for (int i = 0; i < 16; ++i) {
        if (test(ticket)) return;
        cpu_relax();
      }
    } while (Clock::now() < spin_until);
    std::optional<Blocker> blocked;
    {
      const std::scoped_lock lock(mutex_);
      if (advance()) continue;
      blocked = blocker();
    }
    if (!blocked) continue;
    sleep_on(*blocked, deadline);
    if (!test(ticket)) check_progress(deadline, timeout);
  }
}

void Engine::sleep_on(const Blocker& blocker, const Deadline& deadline) {
  Word& sleepers = state(blocker.rank).sleepers;
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  const std::uint32_t value = blocker.word->load(std::memory_order_seq_cst);
  const bool gone = state(blocker.rank).left.load(std::memory_order_acquire) != 0 ||
                    header().abort.state.load(std::memory_order_acquire) == kAborted;
  if (counter_difference(value, blocker.wanted) < 0 && !gone) {
    futex_wait(*blocker.word, value,
               std::min<std::chrono::nanoseconds>(deadline.remaining(), kLivenessInterval));
  }
  sleepers.fetch_sub(1, std::memory_order_relaxed);
}

// Called when a sleep did not help: is the peer gone, or the time over?
void Engine::check_progress(const Deadline& deadline, std::chrono::milliseconds timeout) {
  std::string reason;
  bool late = false;
  {
    const std::scoped_lock lock(mutex_);
    const auto blocked = blocker();
    if (!blocked || released_ == posted_) return;
    const std::string mine =
        str(describe(operation(released_).description), " (operation ", released_, ")");
    const std::string gone = why_gone(blocked->rank);
    if (!gone.empty()) {
      reason = str(gone, " while rank ", rank_, " was in ", mine);
    } else if (deadline.expired()) {
      late = true;
      reason = str("rank ", rank_, " waited ", static_cast<double>(timeout.count()) / 1e3, " s in ",
                   mine, " for rank ", blocked->rank, " (process ", state(blocked->rank).pid.load(),
                   ") to ", blocked->verb, " it; that rank ", last_call(blocked->rank));
    } else {
      return;
    }
    // The peer may have done its part just before it went.
    if (advance()) return;
  }
  if (late) {
    failed_ = true;
    abort(reason);
    throw TimeoutError(reason);
  }
  fail(reason);
}

// "rank 1 (process 4711) died", or "" for all that is known.
std::string Engine::why_gone(int rank) const {
  if (liveness_ && liveness_->is_dead(rank)) {
    return str("rank ", rank, " (process ", state(rank).pid.load(), ") died");
  }
  if (state(rank).left.load(std::memory_order_acquire) != 0) {
    return str("rank ", rank, " left the group");
  }
  return "";
}

std::string Engine::last_call(int rank) const {
  const std::uint32_t arrived = state(rank).arrived.load(std::memory_order_acquire);
  if (arrived == 0) return "has called nothing yet";
  return str("last called ", describe(state(rank).operations[(arrived - 1) % kRing]), " (operation ",
             arrived - 1, ")");
}

void Engine::check() {
  throw_if_aborted();
  for (int peer = 0; peer < size_; ++peer) {
    const std::string gone = peer == rank_ ? "" : why_gone(peer);
    if (!gone.empty()) fail(gone);
  }
}

// --- Ending --------------------------------------------------------------------------------------

void Engine::abort(const std::string& reason) {
  AbortState& shared = header().abort;
  std::uint32_t expected = kRunning;
  if (!shared.state.compare_exchange_strong(expected, kAborting)) return;
  shared.rank = static_cast<std::uint32_t>(rank_);
  const std::size_t length = std::min(reason.size(), sizeof(shared.reason) - 1);
  std::memcpy(shared.reason, reason.data(), length);
  shared.reason[length] = '\0';
  shared.state.store(kAborted, std::memory_order_release);
  for (int peer = 0; peer < size_; ++peer) {
    for (Word* word : {&state(peer).arrived, &state(peer).reduced, &state(peer).released}) {
      futex_wake_all(*word);
    }
  }
}

void Engine::throw_if_aborted() {
  const AbortState& shared = header().abort;
  if (shared.state.load(std::memory_order_acquire) != kAborted) [[likely]] {
    // Another rank may be about to write its reason, or have died over it.
    if (failed_.load(std::memory_order_relaxed)) throw CommError("the group has ended");
    return;
  }
  failed_ = true;
  if (static_cast<int>(shared.rank) == rank_) throw CommError(shared.reason);
  throw CommError(str("rank ", shared.rank, " ended the group: ", shared.reason));
}

void Engine::fail(const std::string& reason) {
  failed_ = true;
  abort(reason);
  throw CommError(reason);
}

// --- Symmetric memory ----------------------------------------------------------------------------

namespace {

// What rank 0 tells the others about a new segment, held as long as it travels.
struct Offer {
  SegmentAddress address;
  std::size_t asked = 0;
};

// Puts the pages there now: later, missing memory would be a SIGBUS in the middle of a reduction.
void populate(std::byte* data, std::size_t bytes) {
  if (madvise(data, bytes, MADV_POPULATE_WRITE) == 0) return;
  const int error = errno;
  if (error == EINVAL) return;  // a kernel before 5.14: pages come when they are touched
  throw CommError(str("allocate: no memory for ", bytes, " bytes: ", errno_text(error)));
}

}  // namespace

std::shared_ptr<SymmetricRange> Engine::share_range(std::size_t bytes,
                                                    std::chrono::milliseconds timeout) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  auto range = std::make_shared<SymmetricRange>();
  range->stride = round_up(std::max<std::size_t>(bytes, 1), page);
  range->rank = rank_;
  range->id = ++next_range_;
  const auto offer = std::make_shared<Offer>();
  if (rank_ == 0) {
    range->segment = Segment::create(range->stride * static_cast<std::size_t>(size_));
    *offer = {range->segment->address(), bytes};
  }
  wait(post_broadcast(reinterpret_cast<std::byte*>(offer.get()), sizeof(Offer), 0, offer), timeout);
  if (offer->asked != bytes) {
    throw CommError(str("allocate: rank ", rank_, " asked for ", bytes, " bytes, rank 0 for ",
                        offer->asked));
  }
  if (rank_ != 0) range->segment = Segment::open(offer->address);
  // First touch by the owner puts the slice on the owner's memory node.
  populate(range->slice(rank_), range->stride);
  wait(post_barrier(), timeout);
  populate(range->segment->data(), range->segment->bytes());
  if (rank_ == 0) range->segment->close_descriptor();
  return range;
}

std::shared_ptr<std::byte> Engine::allocate(std::size_t bytes, std::chrono::milliseconds timeout) {
  std::shared_ptr<SymmetricRange> range;
  try {
    range = share_range(bytes, timeout);
  } catch (const CommError& error) {
    abort(error.what());  // a no-op where a peer did so first
    throw;
  }
  registry_.add(range);
  std::byte* data = range->slice(rank_);
  return {data, [range, engine = weak_from_this()](std::byte*) {
            if (const auto alive = engine.lock()) alive->registry_.remove(range.get());
          }};
}

}  // namespace lockstep::shm
