#include <lockstep/comm/backends/shm/waiter.h>

#include <algorithm>
#include <string>

namespace lockstep::shm {
namespace {

// How often a sleeping rank wakes up to check whether its peers are alive. 50 times a second costs
// almost nothing and limits the time until a death is noticed.
constexpr std::chrono::milliseconds kLivenessInterval{20};

}  // namespace

// A caller that only calls test() must also notice that a peer has died.
bool Waiter::test(const Goal& goal) {
  if (reached(goal)) return true;
  const auto now = Clock::now();
  Clock::rep due = next_doubt_.load(std::memory_order_relaxed);
  if (now.time_since_epoch().count() < due) return false;
  const auto next = (now + kLivenessInterval).time_since_epoch().count();
  if (due != 0 && next_doubt_.compare_exchange_strong(due, next)) {
    give_up_if_hopeless(goal, Deadline(std::chrono::hours(1)), std::chrono::hours(1));
    // The caller may test no other goal, so this call reports the death of any rank.
    state_.throw_if_ended();
    return reached(goal);
  }
  next_doubt_.store(next, std::memory_order_relaxed);
  return false;
}

bool Waiter::reached(const Goal& goal, bool& moved) {
  if (goal.transfer != nullptr) {
    if (goal.transfer->done.load(std::memory_order_acquire)) return true;
  } else {
    const Word& released = state_.control.state(state_.rank).released;
    if (counter_difference(released.load(std::memory_order_acquire), goal.ticket) >= 0) return true;
  }
  const std::scoped_lock lock(state_.mutex);
  const auto there = [&] {
    if (goal.transfer != nullptr) return goal.transfer->done.load(std::memory_order_relaxed);
    return counter_difference(state_.chunks.released(), goal.ticket) >= 0;
  };
  if (there()) return true;
  moved = state_.advance_and_wake();
  return there();
}

bool Waiter::others_moved() {
  return state_.options.progress && state_.options.progress->advance(&owner_);
}

void Waiter::wait(const Goal& goal, std::chrono::milliseconds timeout) {
  if (reached(goal)) return;
  const Deadline deadline(timeout);
  Patience patience(state_.options.patience, deadline.remaining());
  std::vector<comm::AwaitedWord> words;
  const auto interval = [&] {
    return std::min<std::chrono::nanoseconds>(deadline.remaining(), kLivenessInterval);
  };
  auto next_doubt = Clock::now() + interval();
  for (;;) {
    bool moved = false;
    if (reached(goal, moved)) return;
    if (!moved && patience.pause()) continue;
    moved = moved || others_moved();
    if (!moved && sleep(goal, interval(), words, moved)) return;
    // A long operation is a sequence of many short waits, each of which polls before it sleeps.
    if (moved) patience.reset();
    // A thread that never sleeps must still notice that a peer has died.
    if (Clock::now() < next_doubt) continue;
    next_doubt = Clock::now() + interval();
    if (!reached(goal)) give_up_if_hopeless(goal, deadline, timeout);
  }
}

// Sleeps until an awaited word changes, unless something moves first. Returns whether the goal has
// been reached.
bool Waiter::sleep(const Goal& goal, std::chrono::nanoseconds longest,
                   std::vector<comm::AwaitedWord>& words, bool& moved) {
  words.clear();
  awaited_words(words);
  if (comm::Progress* const progress = state_.options.progress.get()) {
    progress->awaited_words(&owner_, words);
    longest = std::min(longest, progress->longest_sleep());
  }
  // The words may have changed between the last attempt to advance and the moment they were read.
  if (reached(goal, moved)) return true;
  moved = moved || others_moved();
  if (moved) return false;
  sleep_on(words, longest);
  return reached(goal, moved);
}

void Waiter::awaited_words(std::vector<comm::AwaitedWord>& words) {
  const std::size_t first = words.size();
  const std::scoped_lock lock(state_.mutex);
  if (const auto blocked = state_.chunks.blocker()) {
    Word& sleepers = state_.control.state(blocked->rank).sleepers;
    words.push_back({blocked->word, blocked->seen, &sleepers});
  }
  if (!state_.channels.idle()) state_.channels.awaited_words(words);
  for (std::size_t i = first; i < words.size(); ++i) words[i].owner = state_.memory;
}

// Asks twice, because a peer may do its part just before it is gone, after which the goal waits for
// another peer.
void Waiter::give_up_if_hopeless(const Goal& goal, const Deadline& deadline,
                                 std::chrono::milliseconds timeout) {
  bool late = false;
  const auto reason_now = [&] {
    const std::scoped_lock lock(state_.mutex);
    return reason_to_give_up(state_, goal, deadline, timeout, late);
  };
  if (reason_now().empty() || reached(goal)) return;
  const std::string reason = reason_now();
  if (reason.empty()) return;
  {
    const std::scoped_lock lock(state_.mutex);
    state_.end.stop();
  }
  state_.end.fail(reason, late);
}

}  // namespace lockstep::shm
