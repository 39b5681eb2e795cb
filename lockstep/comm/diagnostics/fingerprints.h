// LOCKSTEP_DEBUG=detail: before every collective the ranks compare what they call.
//
// A program whose ranks call different things hangs, or adds up garbage, some operations later.
// With this it ends at the first difference, on all ranks with the same words: "rank 1 called
// all_reduce[float32, 4] as number 17, rank 0 called broadcast[float32, 4, root 0]". Costs some
// round trips to the store for each collective. Shared memory compares by itself, always and at no
// cost, but for what travels as messages; asked for details it does both.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <lockstep/comm/call/description.h>
#include <lockstep/comm/rendezvous/text_exchange.h>

namespace lockstep {

/// Whether the environment asks for it.
bool fingerprints_wanted();

/// The fingerprints of one group. Safe to use from several threads, which must make their calls in
/// the same order as those of the other ranks.
class Fingerprints {
 public:
  /// Uses the store of `exchange`, which must be this group's alone, and its names of the ranks.
  Fingerprints(const TextExchange& exchange, std::chrono::milliseconds timeout);

  /// Collective, before collective `number` starts. CommError when a rank calls something else;
  /// TimeoutError names the ranks that call nothing. `check` is called while waiting and may throw.
  void compare(std::uint64_t number, const CallDescription& call,
               const std::function<void()>& check);

 private:
  std::string key(std::uint64_t number, int rank) const;
  std::vector<std::string> gather(std::uint64_t number, const std::string& mine,
                                  const std::function<void()>& check);
  [[noreturn]] void time_out(std::uint64_t number, const std::string& mine);

  const c10::intrusive_ptr<c10d::Store> store_;
  const int rank_;
  const std::vector<int> world_ranks_;
  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
};

}  // namespace lockstep
