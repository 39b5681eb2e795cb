#include <lockstep/comm/waiting/patience.h>

#include <sched.h>

#include <algorithm>
#include <thread>

namespace lockstep::shm {
namespace {

// A poll costs about 10 ns and reading the clock about the same, so the clock is read only once per
// this many polls.
constexpr unsigned kLooksPerClock = 32;

}  // namespace

Patience::Patience(const PatienceOptions& options, std::chrono::nanoseconds at_most)
    : options_(options), at_most_(at_most) {}

bool Patience::pause() {
  if (looks_ == 0) start_ = Clock::now();
  const bool ask = ++looks_ % kLooksPerClock == 0 || options_.spin.count() == 0;
  if (!ask) {
    cpu_relax();
    return true;
  }
  const auto waited = Clock::now() - start_;
  if (waited >= at_most_) return false;
  if (waited < options_.spin) {
    cpu_relax();
    return true;
  }
  if (waited < options_.spin + options_.yield) {
    sched_yield();
    return true;
  }
  return false;
}

void Patience::reset() { looks_ = 0; }

void sleep_on(std::span<const comm::AwaitedWord> words, std::chrono::nanoseconds timeout) {
  if (words.empty()) {
    std::this_thread::sleep_for(timeout);
    return;
  }
  std::vector<ExpectedWord> expected;
  expected.reserve(words.size());
  for (const comm::AwaitedWord& each : words) {
    each.sleepers->fetch_add(1, std::memory_order_seq_cst);
    expected.push_back({each.word, each.seen});
  }
  futex_wait_any(expected, timeout);
  for (const comm::AwaitedWord& each : words)
    each.sleepers->fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace lockstep::shm
