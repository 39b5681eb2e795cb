#include <lockstep/comm/store/table.h>

#include <algorithm>
#include <charconv>
#include <utility>

namespace lockstep::tcp_store {

void Table::set(const std::string& key, std::string value) {
  values_[key] = std::move(value);
  came(key);
}

std::string Table::compare_set(const std::string& key, const std::string& expected,
                               const std::string& desired) {
  const auto found = values_.find(key);
  if (found == values_.end()) {
    if (!expected.empty()) return expected;  // same answer as TCPStore
  } else if (found->second != expected) {
    return found->second;
  }
  set(key, desired);
  return desired;
}

std::optional<std::int64_t> Table::add(const std::string& key, std::int64_t number) {
  std::int64_t before = 0;
  if (const std::string* const value = find(key)) {
    const char* const end = value->data() + value->size();
    const auto parsed = std::from_chars(value->data(), end, before);
    if (parsed.ec != std::errc{} || parsed.ptr != end) return std::nullopt;
  }
  std::int64_t sum = 0;
  if (__builtin_add_overflow(before, number, &sum)) return std::nullopt;
  set(key, std::to_string(sum));
  return sum;
}

void Table::append(const std::string& key, const std::string& value) {
  values_[key] += value;
  came(key);
}

const std::string* Table::find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

bool Table::wait(Waiter waiter, const std::vector<std::string>& keys) {
  cancel(waiter);
  std::vector<std::string> missing;
  for (const auto& key : keys) {
    if (find(key) == nullptr) missing.push_back(key);
  }
  std::sort(missing.begin(), missing.end());
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  if (missing.empty()) return false;
  for (const auto& key : missing) waiters_[key].push_back(waiter);
  awaited_[waiter] = std::move(missing);
  return true;
}

void Table::cancel(Waiter waiter) {
  const auto found = awaited_.find(waiter);
  if (found == awaited_.end()) return;
  for (const auto& key : found->second) {
    const auto place = waiters_.find(key);
    std::erase(place->second, waiter);
    if (place->second.empty()) waiters_.erase(place);
  }
  awaited_.erase(found);
}

void Table::came(const std::string& key) {
  const auto place = waiters_.find(key);
  if (place == waiters_.end()) return;
  const std::vector<Waiter> waiters = std::move(place->second);
  waiters_.erase(place);
  for (const Waiter waiter : waiters) {
    const auto found = awaited_.find(waiter);
    std::erase(found->second, key);
    if (!found->second.empty()) continue;
    awaited_.erase(found);
    ready_(waiter);
  }
}

}  // namespace lockstep::tcp_store
