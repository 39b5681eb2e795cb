#include <lockstep/comm/waiting/progress.h>

#include <algorithm>
#include <utility>

#include <lockstep/comm/waiting/patience.h>

namespace lockstep::comm {

bool Progressing::needs_a_hand() {
  if (advance()) return true;
  std::vector<AwaitedWord> words;
  awaited_words(words);
  return !words.empty();
}

void Progress::add(std::weak_ptr<Progressing> member) {
  const std::scoped_lock lock(mutex_);
  std::erase_if(members_, [](const auto& each) { return each.expired(); });
  members_.push_back(std::move(member));
}

// Returns a copy, so that the lock is not held while members advance: one of them may add another.
std::vector<std::shared_ptr<Progressing>> Progress::members() {
  const std::scoped_lock lock(mutex_);
  std::vector<std::shared_ptr<Progressing>> alive;
  for (const auto& each : members_) {
    if (auto member = each.lock()) alive.push_back(std::move(member));
  }
  return alive;
}

bool Progress::advance(const Progressing* except) {
  bool moved = false;
  for (const auto& member : members()) {
    if (member.get() != except) moved = member->advance() || moved;
  }
  return moved;
}

void Progress::awaited_words(const Progressing* except, std::vector<AwaitedWord>& words) {
  for (const auto& member : members()) {
    if (member.get() != except) member->awaited_words(words);
  }
  if (has_ringers_.load(std::memory_order_relaxed)) {
    words.push_back({&bell_, bell_.load(std::memory_order_acquire), &listeners_});
  }
}

std::chrono::nanoseconds Progress::longest_sleep() {
  auto longest = std::chrono::nanoseconds::max();
  for (const auto& member : members()) longest = std::min(longest, member->longest_sleep());
  return longest;
}

bool Progress::needs_a_hand() {
  bool any = false;
  for (const auto& member : members()) any = member->needs_a_hand() || any;
  return any;
}

void Progress::pause(std::chrono::nanoseconds limit, const std::function<bool()>& is_over) {
  if (advance(nullptr)) return;
  std::vector<AwaitedWord> words;
  awaited_words(nullptr, words);
  if (is_over() || advance(nullptr)) return;
  shm::sleep_on(words, std::min(limit, longest_sleep()));
}

void Progress::ring() {
  bell_.fetch_add(1, std::memory_order_seq_cst);
  if (listeners_.load(std::memory_order_seq_cst) != 0) shm::futex_wake_all(bell_);
}

}  // namespace lockstep::comm
