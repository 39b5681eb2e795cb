// The store through which a library's ranks find each other. It never blocks the connection that
// other code of this rank shares, and the keys that the library wrote can be deleted.
#pragma once

#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <lockstep/comm/rendezvous/forwarding_store.h>

namespace lockstep::c10d_adapter {

/// Forwards every call, but waits by polling, with its own timeout. Safe to use from several
/// threads.
class GroupStore final : public comm::ForwardingStore<> {
 public:
  /// `check` is called repeatedly during a wait; an exception from it ends the wait.
  explicit GroupStore(c10::intrusive_ptr<c10d::Store> store, std::function<void()> check = {});

  /// Deletes all keys that were set through this object.
  void forget();

  using ForwardingStore::compareSet;
  using ForwardingStore::set;
  c10::intrusive_ptr<c10d::Store> clone() override;
  void set(const std::string& key, const Bytes& value) override;
  Bytes compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) override;
  Bytes get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t value) override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;
  std::vector<Bytes> multiGet(const std::vector<std::string>& keys) override;
  const std::chrono::milliseconds& getTimeout() const noexcept override;
  void setTimeout(const std::chrono::milliseconds& timeout) override;
  /// False, because the extended calls would set keys that forget() does not know.
  bool hasExtendedApi() const override { return false; }

 private:
  void remember(const std::string& key);

  const std::function<void()> check_;
  std::mutex mutex_;  // guards keys_
  std::set<std::string> keys_;
};

}  // namespace lockstep::c10d_adapter
