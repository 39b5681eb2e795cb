// A backward with its transfers, replayed.
#pragma once

#include <vector>

namespace lockstep {

/// The transfer of one bucket.
struct BucketTransfer {
  double ready_seconds = 0;  ///< of computing, since backward began
  double alone_seconds = 0;  ///< what it takes while nobody computes
  /// What it takes while backward computes on the same processor, and how long backward stands
  /// still meanwhile. On processors of its own (a GPU's copy engines, a network card) that is
  /// alone_seconds and 0.
  double beside_seconds = 0;
  double taken_seconds = 0;
};

struct SimulatedBackward {
  /// From backward's beginning to the last gradient: longer than its computing by what transfers
  /// took.
  double backward_seconds = 0;
  double exposed_seconds = 0;  ///< from there to the end of the last transfer
  struct Transfer {
    double begin = 0;
    double end = 0;
  };
  std::vector<Transfer> transfers{};  ///< since backward began
};

/// Transfers go one behind the other on one channel, in their order: each begins when it is ready
/// and the one before it has ended (S. Li et al., "PyTorch Distributed", VLDB 2020, section 3.2.3:
/// buckets are reduced in order). While one is under way beside backward, backward runs at the
/// speed 1 - taken / beside, and the transfer at alone / beside of its own. `transfers` by
/// ready_seconds, which are at most `compute_seconds`; beside_seconds are at least taken_seconds
/// and alone_seconds.
SimulatedBackward simulate_backward(double compute_seconds,
                                    const std::vector<BucketTransfer>& transfers);

}  // namespace lockstep
