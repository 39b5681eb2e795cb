// What a collective costs a rank that computes meanwhile.
#pragma once

#include <functional>

#include <lockstep/comm/group/process_group.h>

namespace lockstep {

/// What one call took on this rank.
struct BesideTimes {
  double until_end_us = 0;  ///< from its start until this rank, which looks in between, saw its end
  /// What computing did not get of that: the time that moving the data took here.
  double taken_us = 0;
};

/// Starts a collective by `start` and does arithmetic in portions of about 20 us until it has
/// ended. What the portions take otherwise is measured just before, so that the rest is what the
/// transport's threads, the kernel and the calls themselves took from the processor. The arithmetic
/// touches no memory: caches and memory that computing and a transfer share are not in it.
/// Collective, as far as `start` is; `ready` is called between the two measurements, and may wait
/// for the other ranks. Throws what the collective's wait() throws.
BesideTimes compute_beside(const std::function<void()>& ready,
                           const std::function<WorkPtr()>& start);

}  // namespace lockstep
