// Measures this machine's memory copy speed, an upper bound for any loader of pixels in memory.
#pragma once

namespace lockstep::bench {

/// Bytes per second that `threads` threads (at least one) together read and write, measured for
/// about `seconds`; both directions count. Each thread copies memory of its own, which for all
/// threads together exceeds the caches.
double copy_bandwidth(int threads, double seconds);

}  // namespace lockstep::bench
