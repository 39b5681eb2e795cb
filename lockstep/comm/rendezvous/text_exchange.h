// What ranks tell each other before they have a backend: short texts, through the store.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace lockstep {

/// Every wait sleeps in the store until what it waits for is there, and comes back now and then: so
/// it can end when a rank refuses, and say whom it waited for. Messages name the ranks by their
/// place in the first group. Not thread-safe.
class TextExchange {
 public:
  using Check = std::function<void()>;

  /// `world_ranks[r]` is the rank r of this group in the first one; empty: this is the first one.
  TextExchange(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
               std::chrono::milliseconds timeout, std::vector<int> world_ranks = {});

  /// Collective. The texts that all ranks gave under `topic`, in the order of the ranks; each topic
  /// can be used once. Rank 0, which may serve the store, returns after all have read, and leaves
  /// none of the texts in the store. TimeoutError names the ranks that did not come and what they
  /// were awaited for (`topic`); CommError when a rank refused. `check`, if given, is called while
  /// waiting and may throw. `timeout`: the one of the constructor where absent; a store of ours
  /// that does not answer is a TimeoutError soon after it, and cannot be used any more.
  std::vector<std::string> exchange(
      const std::string& topic, const std::string& text, const Check& check = {},
      std::optional<std::chrono::milliseconds> timeout = std::nullopt);

  /// What exchange() calls while it waits where it is given no `check`.
  void meanwhile(Check check) { meanwhile_ = std::move(check); }
  const Check& meanwhile() const { return meanwhile_; }

  /// From now on rank 0 says in the log what a wait of more than some seconds is for.
  void announce_waits(bool wanted) { announces_waits_ = wanted; }

  /// Ends the meeting for all ranks, at once for those that wait in `topic`: they throw CommError
  /// with `reason`, and so does this call.
  [[noreturn]] void refuse(const std::string& topic, const std::string& reason);

  c10d::Store& store() const { return *store_; }
  const c10::intrusive_ptr<c10d::Store>& store_pointer() const { return store_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  std::chrono::milliseconds timeout() const { return timeout_; }
  const std::vector<int>& world_ranks() const { return world_ranks_; }
  void rename(std::vector<int> world_ranks) {
    world_ranks_ = std::move(world_ranks);
    own_name_.reset();
  }
  /// Until rename(): this rank is `world_rank` in the first group, and what the others are there is
  /// not known.
  void call_me(int world_rank) { own_name_ = world_rank; }
  int world_rank() const {
    return own_name_.value_or(world_ranks_[static_cast<std::size_t>(rank_)]);
  }

 private:
  void publish(const std::string& all, const std::vector<std::string>& given);
  // Until all `keys` are there. A rank r whose key of_ranks[r] is missing is named in messages.
  void await(const std::vector<std::string>& keys, const std::vector<std::string>& of_ranks,
             const std::string& topic, const Check& check, std::chrono::milliseconds timeout);
  bool come_within(std::chrono::milliseconds limit, const std::vector<std::string>& keys);
  void forget(const std::vector<std::string>& keys);
  [[noreturn]] void leave_with(const std::string& reason);
  std::string missing_ranks(const std::vector<std::string>& keys);

  c10::intrusive_ptr<c10d::Store> store_;
  int rank_;
  int size_;
  std::chrono::milliseconds timeout_;
  std::vector<int> world_ranks_;
  Check meanwhile_;
  bool announces_waits_ = false;
  std::optional<int> own_name_;  // set: world_ranks_ are places in this group
};

}  // namespace lockstep
