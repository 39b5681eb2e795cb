// The engine's waits: patience, sleep, and the moment at which there is nothing to hope for.
#include <algorithm>
#include <cstring>

#include <lockstep/comm/backends/shm/engine.h>
#include <lockstep/core/error.h>

namespace lockstep::shm {
namespace {

// How often a sleeping rank wakes up to see whether its peers are alive: 50 times a second costs
// nothing and bounds the time to notice a death.
constexpr std::chrono::milliseconds kLivenessInterval{20};

// A timeout reports the last operation of at most this number of ranks.
constexpr int kMostRanksTold = 16;

bool read_last_transfer(const LastTransfer& shared, CallDescription& call) {
  std::array<std::uint64_t, LastTransfer::kWords> words{};
  const std::uint32_t before = shared.version.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < words.size(); ++i) {
    words[i] = shared.words[i].load(std::memory_order_relaxed);
  }
  std::atomic_thread_fence(std::memory_order_acquire);
  if (before == 0 || before % 2 != 0 || shared.version.load(std::memory_order_relaxed) != before) {
    return false;
  }
  std::memcpy(static_cast<void*>(&call), words.data(), sizeof(call));
  return true;
}

}  // namespace

bool Engine::test(Ticket ticket) { return test_goal({nullptr, ticket}); }
bool Engine::test(const Transfer& transfer) { return test_goal({&transfer, 0}); }

// A caller that only polls must hear of a death, too.
bool Engine::test_goal(const Goal& goal) {
  if (reached(goal)) return true;
  const auto now = Clock::now();
  Clock::rep due = next_doubt_.load(std::memory_order_relaxed);
  if (now.time_since_epoch().count() < due) return false;
  const auto next = (now + kLivenessInterval).time_since_epoch().count();
  if (due != 0 && next_doubt_.compare_exchange_strong(due, next)) {
    give_up_if_hopeless(goal, Deadline(std::chrono::hours(1)), std::chrono::hours(1));
    // It does not matter which rank died: this may be the only goal that is polled.
    throw_if_ended();
    return reached(goal);
  }
  next_doubt_.store(next, std::memory_order_relaxed);
  return false;
}

void Engine::wait(Ticket ticket, std::chrono::milliseconds timeout) {
  wait_for({nullptr, ticket}, timeout);
}
void Engine::wait(const Transfer& transfer, std::chrono::milliseconds timeout) {
  wait_for({&transfer, 0}, timeout);
}

bool Engine::reached(const Goal& goal) {
  bool moved = false;
  return reached(goal, moved);
}

bool Engine::reached(const Goal& goal, bool& moved) {
  if (goal.transfer != nullptr) {
    if (goal.transfer->done.load(std::memory_order_acquire)) return true;
  } else {
    const std::uint32_t released = control_.state(rank_).released.load(std::memory_order_acquire);
    if (counter_difference(released, goal.ticket) >= 0) return true;
  }
  const std::scoped_lock lock(mutex_);
  const auto there = [&] {
    if (goal.transfer != nullptr) return goal.transfer->done.load(std::memory_order_relaxed);
    return counter_difference(released_, goal.ticket) >= 0;
  };
  if (there()) return true;
  moved = advance_locked();
  return there();
}

void Engine::wait_for(const Goal& goal, std::chrono::milliseconds timeout) {
  if (reached(goal)) return;
  const Deadline deadline(timeout);
  Patience patience(options_.patience, deadline.remaining());
  std::vector<AwaitedWord> words;
  const auto others_moved = [&] { return options_.progress && options_.progress->advance(this); };
  const auto interval = [&] {
    return std::min<std::chrono::nanoseconds>(deadline.remaining(), kLivenessInterval);
  };
  auto next_doubt = Clock::now() + interval();
  const auto doubt = [&] {
    if (Clock::now() < next_doubt) return;
    next_doubt = Clock::now() + interval();
    if (!reached(goal)) give_up_if_hopeless(goal, deadline, timeout);
  };
  // A long operation is many short waits, each with a patience of its own; and it may never sleep.
  const auto note_move = [&] {
    patience.reset();
    doubt();
  };
  for (;;) {
    bool moved = false;
    if (reached(goal, moved)) return;
    if (!moved && patience.pause()) continue;
    if (moved || others_moved()) {
      note_move();
      continue;
    }
    words.clear();
    awaited_words(words);
    auto longest_sleep = interval();
    if (options_.progress) {
      options_.progress->awaited_words(this, words);
      longest_sleep = std::min(longest_sleep, options_.progress->longest_sleep());
    }
    // What the words just read stand for may have come after the last look.
    if (reached(goal, moved)) return;
    if (moved || others_moved()) {
      note_move();
      continue;
    }
    sleep_on(words, longest_sleep);
    if (reached(goal, moved)) return;
    moved ? note_move() : doubt();
  }
}

void Engine::awaited_words(std::vector<AwaitedWord>& words) {
  const std::size_t first = words.size();
  const std::scoped_lock lock(mutex_);
  if (const auto blocked = blocker()) {
    words.push_back({blocked->word, blocked->seen, &control_.state(blocked->rank).sleepers});
  }
  if (!channels_.idle()) channels_.awaited_words(words);
  for (std::size_t i = first; i < words.size(); ++i) words[i].owner = memory_;
}

// Called when a sleep did not help: is a peer gone, or the time over? Asked twice: a peer may do
// its part just before it goes, and then another is waited for.
void Engine::give_up_if_hopeless(const Goal& goal, const Deadline& deadline,
                                 std::chrono::milliseconds timeout) {
  bool late = false;
  if (reason_to_give_up(goal, deadline, timeout, late).empty() || reached(goal)) return;
  const std::string reason = reason_to_give_up(goal, deadline, timeout, late);
  if (reason.empty()) return;
  {
    const std::scoped_lock lock(mutex_);  // who moves something is through with it
    failed_ = true;
  }
  abort(reason, late);
  if (late) throw TimeoutError(reason);
  throw CommError(reason);
}

std::string Engine::reason_to_give_up(const Goal& goal, const Deadline& deadline,
                                      std::chrono::milliseconds timeout, bool& late) {
  const std::scoped_lock lock(mutex_);
  const std::string gone = why_gone(goal);
  late = gone.empty() && deadline.expired();
  if (!gone.empty()) return str(gone, " while ", rank_name(rank_), " was in ", what(goal));
  if (!late) return "";
  return str(rank_name(rank_), " waited ", static_cast<double>(timeout.count()) / 1e3, " s in ",
             what(goal), whom(goal));
}

std::string Engine::what(const Goal& goal) const {
  if (goal.transfer != nullptr) return describe(goal.transfer->call);
  return pending_.size() == 0 ? "no operation" : describe(pending_.at(released_).description);
}

// Why the goal cannot be reached any more, or "".
std::string Engine::why_gone(const Goal& goal) const {
  if (goal.transfer == nullptr) {
    // A death ends the group, whoever is waited for; who left has done its part of what it could.
    const auto blocked = blocker();
    std::string reason = blocked ? why_gone(blocked->rank) : "";
    // It may have done its part just before it left.
    if (blocked && blocked->word->load(std::memory_order_acquire) != blocked->seen) reason.clear();
    for (int peer : liveness_ ? liveness_->dead_ranks() : std::vector<int>()) {
      if (reason.empty() && died(peer)) reason = why_gone(peer);
    }
    return reason;
  }
  std::string reason;
  int awaited = 0;
  int left = 0;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_ || !Channels::needs(*goal.transfer, peer)) continue;
    ++awaited;
    const std::string gone = why_gone(peer);
    if (gone.empty()) continue;
    ++left;
    reason = gone;
    if (control_.state(peer).left.load(std::memory_order_acquire) == 0) return gone;
  }
  return left == awaited ? reason : "";
}

// Without having left. Asked in this order: who is dead leaves no more.
bool Engine::died(int rank) const {
  return liveness_ && liveness_->is_dead(rank) &&
         control_.state(rank).left.load(std::memory_order_acquire) == 0;
}

// "rank 1 (process 4711) died", or "" for all that is known.
std::string Engine::why_gone(int rank) const {
  if (died(rank))
    return str(rank_name(rank), " (process ", control_.state(rank).pid.load(), ") died");
  if (control_.state(rank).left.load(std::memory_order_acquire) == 0) return "";
  return str(rank_name(rank), " left the group");
}

// " for rank 1 (process 4711) to arrive at it, which last called barrier (operation 3); rank 2 last
// ..."
std::string Engine::whom(const Goal& goal) const {
  std::string text;
  int first = -1;
  if (goal.transfer == nullptr) {
    const auto blocked = blocker();
    if (!blocked) return "";
    first = blocked->rank;
    text = str(" for ", rank_name(first), " (process ", control_.state(first).pid.load(), ") to ",
               blocked->verb, " it; ");
  } else {
    // A message waits for one rank, which may itself wait for another.
    const std::string names = stopped();
    text = names.empty() ? "; " : str(" for ", names, "; ");
  }
  int told = 0;
  const char* separator = "";
  for (int peer = -1; peer < size_ && told < kMostRanksTold; ++peer) {
    const int rank = peer < 0 ? first : peer;  // the one that is waited for comes first
    if (rank < 0 || rank == rank_ || (peer == first && peer >= 0)) continue;
    text += str(separator, rank_name(rank), " ", last_call(rank));
    separator = "; ";
    ++told;
  }
  return text;
}

// "rank 2 (process 4711), which is stopped", or "".
std::string Engine::stopped() const {
  std::vector<std::string> names;
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_ || !liveness_ || !liveness_->is_stopped(rank)) continue;
    names.push_back(str(rank_name(rank), " (process ", control_.state(rank).pid.load(), ")"));
  }
  if (names.empty()) return "";
  return str(join(names), names.size() == 1 ? ", which is stopped" : ", which are stopped");
}

std::string Engine::last_call(int rank) const {
  const RankState& theirs = control_.state(rank);
  const std::uint32_t arrived = theirs.arrived.load(std::memory_order_acquire);
  CallDescription transfer;
  const bool transferred = read_last_transfer(theirs.last_transfer, transfer);
  if (arrived == 0 && !transferred) return "has called nothing yet";
  std::string text = "last called ";
  if (arrived != 0) text += describe(theirs.chunks[(arrived - 1) % kRing]);
  if (transferred) text += str(arrived != 0 ? " and " : "", describe(transfer));
  return text;
}

std::string Engine::rank_name(int rank) const {
  const auto index = static_cast<std::size_t>(rank);
  return str("rank ", options_.world_ranks.empty() ? rank : options_.world_ranks[index]);
}

}  // namespace lockstep::shm
