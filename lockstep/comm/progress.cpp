#include <lockstep/comm/progress.h>

#include <utility>

namespace lockstep {

void Progress::add(std::weak_ptr<Progressing> member) {
  const std::scoped_lock lock(mutex_);
  std::erase_if(members_, [](const auto& each) { return each.expired(); });
  members_.push_back(std::move(member));
}

// Called without the lock held afterwards: a member may add another while it moves.
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
}

}  // namespace lockstep
