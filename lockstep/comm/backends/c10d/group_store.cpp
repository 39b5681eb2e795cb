#include <lockstep/comm/backends/c10d/group_store.h>

#include <algorithm>
#include <utility>

#include <lockstep/comm/waiting/store_waits.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>

namespace lockstep::c10d_adapter {

GroupStore::GroupStore(c10::intrusive_ptr<c10d::Store> store, std::function<void()> check)
    : ForwardingStore(std::move(store)), check_(std::move(check)) {}

void GroupStore::forget() {
  std::set<std::string> keys;
  {
    const std::scoped_lock lock(mutex_);
    keys.swap(keys_);
  }
  for (const auto& key : keys) store().deleteKey(key);
}

void GroupStore::remember(const std::string& key) {
  const std::scoped_lock lock(mutex_);
  keys_.insert(key);
}

c10::intrusive_ptr<c10d::Store> GroupStore::clone() {
  return c10::make_intrusive<GroupStore>(store().clone(), check_);
}

void GroupStore::set(const std::string& key, const Bytes& value) {
  remember(key);
  ForwardingStore::set(key, value);
}

GroupStore::Bytes GroupStore::compareSet(const std::string& key, const Bytes& expected,
                                         const Bytes& desired) {
  remember(key);
  return ForwardingStore::compareSet(key, expected, desired);
}

GroupStore::Bytes GroupStore::get(const std::string& key) {
  wait({key});
  return ForwardingStore::get(key);
}

std::int64_t GroupStore::add(const std::string& key, std::int64_t value) {
  remember(key);
  return ForwardingStore::add(key, value);
}

void GroupStore::wait(const std::vector<std::string>& keys) { wait(keys, getTimeout()); }

void GroupStore::wait(const std::vector<std::string>& keys,
                      const std::chrono::milliseconds& timeout) {
  const Deadline deadline(timeout);
  for (comm::StorePauses pauses; !ForwardingStore::check(keys); pauses.sleep()) {
    if (check_) check_();
    if (deadline.expired()) {
      throw TimeoutError(lockstep::str("no peer wrote ", join(keys), " into the store for ",
                                       static_cast<double>(timeout.count()) / 1e3, " s"));
    }
  }
}

// Not every store has multiGet().
std::vector<GroupStore::Bytes> GroupStore::multiGet(const std::vector<std::string>& keys) {
  wait(keys);
  std::vector<Bytes> values;
  for (const auto& key : keys) values.push_back(ForwardingStore::get(key));
  return values;
}

const std::chrono::milliseconds& GroupStore::getTimeout() const noexcept {
  return c10d::Store::getTimeout();
}

void GroupStore::setTimeout(const std::chrono::milliseconds& timeout) {
  c10d::Store::setTimeout(timeout);
}

}  // namespace lockstep::c10d_adapter
