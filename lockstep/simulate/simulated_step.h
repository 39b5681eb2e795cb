// Replays a backward pass with its transfers.
#pragma once

#include <vector>

namespace lockstep::simulate {

/// The transfer of one bucket.
struct BucketTransfer {
  double ready_seconds = 0;  ///< seconds of computing since backward began
  double alone_seconds = 0;  ///< duration while the rank does not compute
  /// The duration while backward computes on the same processor, and the time for which backward
  /// stands still meanwhile. With separate hardware (a GPU's copy engines, a network card) these
  /// are alone_seconds and 0.
  double beside_seconds = 0;
  double taken_seconds = 0;
};

struct SimulatedBackward {
  /// From the beginning of backward to the last gradient: the computing time plus the time that
  /// transfers took from it.
  double backward_seconds = 0;
  double exposed_seconds = 0;  ///< from the end of backward to that of the last transfer
  struct Transfer {
    double begin = 0;
    double end = 0;
  };
  std::vector<Transfer> transfers{};  ///< since backward began
};

/// Transfers run one after the other, in order: each begins when it is ready and the previous one
/// has ended (S. Li et al., "PyTorch Distributed", VLDB 2020, section 3.2.3: buckets are reduced in
/// order). While a transfer runs beside backward, backward runs at 1 - taken / beside of its speed,
/// and the transfer at alone / beside of its own. `transfers` are ordered by ready_seconds, which
/// are at most `compute_seconds`; beside_seconds are at least taken_seconds and alone_seconds.
SimulatedBackward simulate_backward(double compute_seconds,
                                    const std::vector<BucketTransfer>& transfers);

}  // namespace lockstep::simulate
