// The store as Gloo gets it: it never blocks the connection that others of this rank use, too, and
// what Gloo wrote can be deleted when the group ends.
#pragma once

#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace lockstep::c10d_adapter {

/// Passes everything on, but waits by looking again and again. Safe to use from several threads.
class GroupStore final : public c10d::Store {
 public:
  /// `check` is called again and again while something is waited for; what it throws ends the wait.
  explicit GroupStore(c10::intrusive_ptr<c10d::Store> store, std::function<void()> check = {});

  /// Deletes all keys that were set through this object.
  void forget();

  using c10d::Store::compareSet;
  using c10d::Store::set;
  c10::intrusive_ptr<c10d::Store> clone() override;
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override;
  std::vector<std::uint8_t> compareSet(const std::string& key,
                                       const std::vector<std::uint8_t>& expected,
                                       const std::vector<std::uint8_t>& desired) override;
  std::vector<std::uint8_t> get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  std::int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;

 private:
  void remember(const std::string& key);

  const c10::intrusive_ptr<c10d::Store> store_;
  const std::function<void()> check_;
  std::mutex mutex_;  // guards keys_
  std::set<std::string> keys_;
};

}  // namespace lockstep::c10d_adapter
