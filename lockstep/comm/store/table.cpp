#include <lockstep/comm/store/table.h>

#include <charconv>

namespace lockstep::tcp_store {
namespace {

// About what the containers need for a key, beyond its characters.
constexpr std::size_t kKeyOverhead = 128;
// A missing key is in two sets.
constexpr std::size_t kWaitOverhead = 2 * kKeyOverhead;

}  // namespace

void Table::put(const std::string& key, std::shared_ptr<HeldText> value) {
  const auto found = entries_.find(key);
  if (found != entries_.end()) {
    found->second.value = std::move(value);
  } else {
    entries_.emplace(key, Entry{Share(budget_, key.size() + kKeyOverhead), std::move(value)});
  }
  came(key);
}

void Table::set(const std::string& key, std::string value) {
  put(key, std::make_shared<HeldText>(budget_, std::move(value)));
}

Table::Value Table::compare_set(const std::string& key, const std::string& expected,
                                const std::string& desired) {
  const Value before = find(key);
  if (before == nullptr) {
    // TCPStore gives this answer.
    if (!expected.empty()) return std::make_shared<HeldText>(budget_, expected);
  } else if (before->text() != expected) {
    return before;
  }
  const auto now = std::make_shared<HeldText>(budget_, desired);
  put(key, now);
  return now;
}

std::optional<std::int64_t> Table::add(const std::string& key, std::int64_t number) {
  std::int64_t before = 0;
  if (const Value value = find(key)) {
    const std::string& text = value->text();
    const char* const end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, before);
    if (parsed.ec != std::errc{} || parsed.ptr != end) return std::nullopt;
  }
  std::int64_t sum = 0;
  if (__builtin_add_overflow(before, number, &sum)) return std::nullopt;
  set(key, std::to_string(sum));
  return sum;
}

void Table::append(const std::string& key, const std::string& value) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return set(key, value);
  // An answer that is being sent refers to the value as it was.
  if (found->second.value.use_count() > 1) {
    return set(key, found->second.value->text() + value);
  }
  found->second.value->append(value);
}

Table::Value Table::find(const std::string& key) const {
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : found->second.value;
}

bool Table::wait(Waiter waiter, const std::vector<std::string>& keys) {
  cancel(waiter);
  Wait wait{Share(budget_), {}};
  for (const auto& key : keys) {
    if (entries_.contains(key) || !wait.missing.insert(key).second) continue;
    wait.share.resize(wait.share.bytes() + 2 * key.size() + kWaitOverhead);
  }
  if (wait.missing.empty()) return false;
  for (const auto& key : wait.missing) waiters_[key].insert(waiter);
  waits_.emplace(waiter, std::move(wait));
  return true;
}

void Table::cancel(Waiter waiter) {
  const auto found = waits_.find(waiter);
  if (found == waits_.end()) return;
  for (const auto& key : found->second.missing) {
    const auto place = waiters_.find(key);
    place->second.erase(waiter);
    if (place->second.empty()) waiters_.erase(place);
  }
  waits_.erase(found);
}

void Table::came(const std::string& key) {
  const auto place = waiters_.find(key);
  if (place == waiters_.end()) return;
  const auto waiters = std::move(place->second);
  waiters_.erase(place);
  for (const Waiter waiter : waiters) {
    const auto found = waits_.find(waiter);
    found->second.missing.erase(key);
    if (!found->second.missing.empty()) continue;
    waits_.erase(found);
    ready_(waiter);
  }
}

}  // namespace lockstep::tcp_store
