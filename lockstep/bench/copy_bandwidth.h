// Measures this machine's memory copy speed, an upper bound for any loader of pixels in memory.
#pragma once

namespace lockstep::bench {

/// Bytes per second that `threads` threads (at least one) read and write together, measured for
/// about `seconds`. Each copies its own memory, which together exceeds the caches. Counts both
/// directions.
double copy_bandwidth(int threads, double seconds);

}  // namespace lockstep::bench
