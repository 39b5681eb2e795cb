// What ranks tell each other before they have a backend: short texts, through the store.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace lockstep {

/// Every wait looks at the store again and again instead of blocking in it: so it can end when a rank
/// refuses, and say whom it waited for. Not thread-safe.
class TextExchange {
 public:
  TextExchange(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
               std::chrono::milliseconds timeout)
      : store_(std::move(store)), rank_(rank), size_(size), timeout_(timeout) {}

  /// Collective. The texts that all ranks gave under `topic`, in the order of the ranks; each topic can
  /// be used once. Rank 0, which serves the store, returns after all have read. TimeoutError names the
  /// ranks that did not come and what they were awaited for (`topic`); CommError when a rank refused.
  /// `check`, if given, is called while waiting and may throw.
  std::vector<std::string> exchange(const std::string& topic, const std::string& text,
                                    const std::function<void()>& check = {});

  /// Ends the meeting for all ranks: they throw CommError with `reason`, and so does this call.
  [[noreturn]] void refuse(const std::string& reason);

  c10d::Store& store() const { return *store_; }
  const c10::intrusive_ptr<c10d::Store>& store_pointer() const { return store_; }
  int rank() const { return rank_; }
  int size() const { return size_; }

 private:
  void await(const std::vector<std::string>& keys, const std::string& topic,
             const std::function<void()>& check);
  [[noreturn]] void leave_with(const std::string& reason);
  std::string missing_ranks(const std::vector<std::string>& keys);

  c10::intrusive_ptr<c10d::Store> store_;
  int rank_;
  int size_;
  std::chrono::milliseconds timeout_;
};

}  // namespace lockstep
