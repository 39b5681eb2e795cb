// The contents of a store, and the clients that wait for missing keys.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace lockstep::tcp_store {

/// The keys, values and waiters of a store. Not thread-safe.
class Table {
 public:
  using Waiter = int;

  /// `ready` is called with each waiter once its last missing key exists.
  explicit Table(std::function<void(Waiter)> ready) : ready_(std::move(ready)) {}

  void set(const std::string& key, std::string value);
  std::string compare_set(const std::string& key, const std::string& expected,
                          const std::string& desired);
  /// Adds to a decimal number and returns the sum. Empty if the current value is not a number.
  std::optional<std::int64_t> add(const std::string& key, std::int64_t number);
  void append(const std::string& key, const std::string& value);
  bool remove(const std::string& key) { return values_.erase(key) > 0; }
  /// Null if the key does not exist.
  const std::string* find(const std::string& key) const;
  std::size_t size() const { return values_.size(); }

  /// Makes `waiter` wait for those of `keys` that do not exist. Returns false if all exist.
  bool wait(Waiter waiter, const std::vector<std::string>& keys);
  void cancel(Waiter waiter);

 private:
  void came(const std::string& key);

  std::function<void(Waiter)> ready_;
  std::unordered_map<std::string, std::string> values_;
  std::unordered_map<std::string, std::vector<Waiter>> waiters_;  // by the missing key
  std::unordered_map<Waiter, std::vector<std::string>> awaited_;  // each waiter's missing keys
};

}  // namespace lockstep::tcp_store
