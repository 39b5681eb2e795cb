// The contents of a store, and the clients that wait for missing keys.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <lockstep/comm/store/budget.h>

namespace lockstep::tcp_store {

/// The keys, values and waiters of a store. All of them count towards a budget; calls that exceed
/// it throw OverBudget. Not thread-safe.
class Table {
 public:
  using Waiter = int;
  /// A value. It stays as it is when the key gets another one.
  using Value = std::shared_ptr<const HeldText>;

  /// `ready` is called with each waiter once its last missing key exists. `budget` must outlive the
  /// table.
  Table(Budget& budget, std::function<void(Waiter)> ready)
      : budget_(budget), ready_(std::move(ready)) {}

  void set(const std::string& key, std::string value);
  Value compare_set(const std::string& key, const std::string& expected,
                    const std::string& desired);
  /// Adds to a decimal number and returns the sum. Empty if the current value is not a number.
  std::optional<std::int64_t> add(const std::string& key, std::int64_t number);
  void append(const std::string& key, const std::string& value);
  bool remove(const std::string& key) { return entries_.erase(key) > 0; }
  /// Null if the key does not exist.
  Value find(const std::string& key) const;
  std::size_t size() const { return entries_.size(); }

  /// Makes `waiter` wait for those of `keys` that do not exist. Returns false if all exist.
  bool wait(Waiter waiter, const std::vector<std::string>& keys);
  void cancel(Waiter waiter);

 private:
  struct Entry {
    Share share;  ///< for the key
    std::shared_ptr<HeldText> value;
  };
  struct Wait {
    Share share;
    std::unordered_set<std::string> missing;
  };

  void put(const std::string& key, std::shared_ptr<HeldText> value);
  void came(const std::string& key);

  Budget& budget_;
  std::function<void(Waiter)> ready_;
  std::unordered_map<std::string, Entry> entries_;
  std::unordered_map<std::string, std::unordered_set<Waiter>> waiters_;  // by the missing key
  std::unordered_map<Waiter, Wait> waits_;
};

}  // namespace lockstep::tcp_store
