// Measures a thread's share of the processor time that its process uses.
#pragma once

#include <algorithm>
#include <ctime>

#include <ATen/Parallel.h>

namespace lockstep::testing_support {

inline double processor_seconds(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// The calling thread's share, from 0 to 1, of the processor time of `work` if LibTorch has
/// `threads` threads. Returns the smallest of three trials, because the share includes the time in
/// which the thread spins while others have no processor. No other thread may work in the meantime.
template <typename Work>
double own_share(int threads, const Work& work) {
  const int before = at::get_num_threads();
  at::set_num_threads(threads);
  double least = 1;
  for (int trial = 0; trial < 3; ++trial) {
    const double all = processor_seconds(CLOCK_PROCESS_CPUTIME_ID);
    const double own = processor_seconds(CLOCK_THREAD_CPUTIME_ID);
    work();
    least = std::min(least, (processor_seconds(CLOCK_THREAD_CPUTIME_ID) - own) /
                                (processor_seconds(CLOCK_PROCESS_CPUTIME_ID) - all));
  }
  at::set_num_threads(before);
  return least;
}

}  // namespace lockstep::testing_support
