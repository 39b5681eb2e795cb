// Measures how much a collective slows down a rank that computes meanwhile.
#pragma once

#include <functional>

#include <lockstep/comm/group/process_group.h>

namespace lockstep::bench {

/// The times of one call on this rank.
struct BesideTimes {
  double until_end_us = 0;  ///< from the call's start until this rank noticed its end
  /// The part of that time that was lost for computing, because it was spent moving the data.
  double taken_us = 0;
};

/// Starts a collective with `start` and does arithmetic, in portions of about 20 us, until the
/// collective has ended. The undisturbed time of a portion is measured just before; the excess is
/// the time that the transport's threads, the kernel and the calls took from the processor. The
/// arithmetic touches no memory, so contention for caches and memory is not included. This call is
/// collective if `start` is. `ready` is called between the two measurements and may wait for the
/// other ranks. Throws the errors of the collective's wait().
BesideTimes compute_beside(const std::function<void()>& ready,
                           const std::function<WorkPtr()>& start);

}  // namespace lockstep::bench
