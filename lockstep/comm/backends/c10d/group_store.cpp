#include <lockstep/comm/backends/c10d/group_store.h>

#include <algorithm>
#include <utility>

#include <lockstep/comm/waiting/store_waits.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>

namespace lockstep::c10d_adapter {

GroupStore::GroupStore(c10::intrusive_ptr<c10d::Store> store, std::function<void()> check)
    : c10d::Store(store->getTimeout()), store_(std::move(store)), check_(std::move(check)) {}

void GroupStore::forget() {
  std::set<std::string> keys;
  {
    const std::scoped_lock lock(mutex_);
    keys.swap(keys_);
  }
  for (const auto& key : keys) store_->deleteKey(key);
}

void GroupStore::remember(const std::string& key) {
  const std::scoped_lock lock(mutex_);
  keys_.insert(key);
}

c10::intrusive_ptr<c10d::Store> GroupStore::clone() {
  return c10::make_intrusive<GroupStore>(store_->clone(), check_);
}

void GroupStore::set(const std::string& key, const std::vector<std::uint8_t>& value) {
  remember(key);
  store_->set(key, value);
}

std::vector<std::uint8_t> GroupStore::compareSet(const std::string& key,
                                                 const std::vector<std::uint8_t>& expected,
                                                 const std::vector<std::uint8_t>& desired) {
  remember(key);
  return store_->compareSet(key, expected, desired);
}

std::vector<std::uint8_t> GroupStore::get(const std::string& key) {
  wait({key});
  return store_->get(key);
}

std::int64_t GroupStore::add(const std::string& key, std::int64_t value) {
  remember(key);
  return store_->add(key, value);
}

bool GroupStore::deleteKey(const std::string& key) { return store_->deleteKey(key); }
bool GroupStore::check(const std::vector<std::string>& keys) { return store_->check(keys); }
std::int64_t GroupStore::getNumKeys() { return store_->getNumKeys(); }

void GroupStore::wait(const std::vector<std::string>& keys) { wait(keys, getTimeout()); }

void GroupStore::wait(const std::vector<std::string>& keys,
                      const std::chrono::milliseconds& timeout) {
  const Deadline deadline(timeout);
  for (StorePauses pauses; !store_->check(keys); pauses.sleep()) {
    if (check_) check_();
    if (deadline.expired()) {
      throw TimeoutError(lockstep::str("no peer wrote ", join(keys), " into the store for ",
                                       static_cast<double>(timeout.count()) / 1e3, " s"));
    }
  }
}

}  // namespace lockstep::c10d_adapter
