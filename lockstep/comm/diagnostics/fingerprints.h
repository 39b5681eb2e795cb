// With LOCKSTEP_DEBUG=detail, the ranks compare their calls before every collective.
//
// If ranks call different collectives, the program hangs or computes garbage some operations later.
// With fingerprints, all ranks throw at the first difference, with the same message: "rank 1 called
// all_reduce[float32, 4] as number 17, rank 0 called broadcast[float32, 4, root 0]". Each
// collective then costs a few extra round trips to the store. The shared memory backend compares
// calls in any mode at no cost, except calls that it carries out as messages between two ranks; in
// detail mode, fingerprints are compared in addition.
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

namespace lockstep::comm {

/// Whether LOCKSTEP_DEBUG enables fingerprints.
bool fingerprints_wanted();

/// The fingerprints of one group. Safe to use from several threads, which must make their calls in
/// the same order as the threads of the other ranks.
class Fingerprints {
 public:
  /// Uses the store of `exchange`, which no other group may use. Messages name ranks by their
  /// ranks in the first group (`exchange.world_ranks()`).
  Fingerprints(const TextExchange& exchange, std::chrono::milliseconds timeout);

  /// Collective; call it before collective `number` starts. Throws CommError if another rank makes
  /// a different call or the store is lost, and TimeoutError, which names the ranks that made no
  /// call. `check` is called while waiting and may throw.
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

}  // namespace lockstep::comm
