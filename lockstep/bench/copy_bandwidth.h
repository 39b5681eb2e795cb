// How fast this machine copies memory: the floor below which no loader of pixels in memory can be.
#pragma once

namespace lockstep {

/// Bytes a second that `threads` threads (at least one) read and write together, each copying
/// memory of its own, together more than caches hold, for about `seconds`. Both directions count.
double copy_bandwidth(int threads, double seconds);

}  // namespace lockstep
