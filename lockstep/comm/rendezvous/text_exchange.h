// Exchanges short texts between ranks through the store before they have a backend.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <lockstep/core/error.h>

namespace lockstep::comm {

/// Every wait sleeps in the store until its keys exist, but wakes up now and then, so that it can
/// end when a rank refuses and can name the ranks it waits for. Messages use the ranks of the first
/// group. Not thread-safe.
class TextExchange {
 public:
  using Check = std::function<void()>;

  /// `world_ranks[r]` is rank r's rank in the first group. If empty, this is the first group.
  TextExchange(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
               std::chrono::milliseconds timeout, std::vector<int> world_ranks = {});

  /// Collective. Returns the texts that all ranks passed under `topic`, in rank order; each topic
  /// can be used once. Rank 0, which may serve the store, returns after all ranks have read the
  /// texts, and leaves none of them in the store. Throws TimeoutError, which names the missing
  /// ranks and the `topic`, and CommError if a rank refused. `check`, if given, is called during
  /// waits and may throw. `timeout` defaults to the constructor's. If a store served by rank 0 does
  /// not answer, TimeoutError is thrown soon after the timeout, and the store can no longer be
  /// used.
  std::vector<std::string> exchange(
      const std::string& topic, const std::string& text, const Check& check = {},
      std::optional<std::chrono::milliseconds> timeout = std::nullopt);

  /// Sets the `check` of exchange() calls that pass none.
  void meanwhile(Check check) { meanwhile_ = std::move(check); }
  const Check& meanwhile() const { return meanwhile_; }

  /// From now on rank 0 logs the reason for waits longer than a few seconds.
  void announce_waits(bool wanted) { announces_waits_ = wanted; }

  /// Ends the meeting for all ranks, immediately for ranks that wait in `topic`: they throw
  /// CommError with `reason`, and so does this call.
  [[noreturn]] void refuse(const std::string& topic, const std::string& reason);
  /// Calls `function`, which may fail on this rank alone, and returns its result. A failure ends
  /// the meeting for all ranks, as refuse() does: this call passes the error on, and the others
  /// throw CommError with its text, which names this rank. If another rank has failed first, this
  /// call throws the same error as the other ranks. The other ranks are not told of a TimeoutError,
  /// because they have the same deadline.
  template <class Function>
  auto attempt(const std::string& topic, const Function& function) {
    try {
      return function();
    } catch (const TimeoutError&) {
      throw;
    } catch (const std::exception& error) {
      tell_failure(topic, error);
      throw;
    }
  }
  /// The reason if a rank has refused. Throws what the store throws if it does not answer.
  std::optional<std::string> refusal() const;
  /// A check for waits outside of exchange(): throws CommError if a rank has refused. It asks the
  /// store ten times per second at most. It refers to this object, which must not be moved.
  Check refusal_check() const;

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
  /// Sets this rank's rank in the first group. The other ranks' are unknown until rename().
  void call_me(int world_rank) { own_name_ = world_rank; }
  int world_rank() const {
    return own_name_.value_or(world_ranks_[static_cast<std::size_t>(rank_)]);
  }

 private:
  void publish(const std::string& all, const std::vector<std::string>& given);
  // Waits until all `keys` exist. Messages name rank r if its key of_ranks[r] is missing.
  void await(const std::vector<std::string>& keys, const std::vector<std::string>& of_ranks,
             const std::string& topic, const Check& check, std::chrono::milliseconds timeout);
  bool come_within(std::chrono::milliseconds limit, const std::vector<std::string>& keys);
  void forget(const std::vector<std::string>& keys);
  std::string publish_refusal(const std::string& topic, const std::string& reason);
  // Returns if this rank has failed first, or all have failed alike; otherwise throws CommError.
  void tell_failure(const std::string& topic, const std::exception& error);
  void leave();
  [[noreturn]] void leave_with(const std::string& reason);
  std::string missing_ranks(const std::vector<std::string>& keys);

  c10::intrusive_ptr<c10d::Store> store_;
  int rank_;
  int size_;
  std::chrono::milliseconds timeout_;
  std::vector<int> world_ranks_;
  Check meanwhile_;
  bool announces_waits_ = false;
  bool has_left_ = false;        // after a refusal
  std::optional<int> own_name_;  // if set, world_ranks_ are ranks of this group
};

}  // namespace lockstep::comm
