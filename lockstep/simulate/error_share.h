// How far predictions were from what was measured afterwards.
#pragma once

namespace lockstep {

/// What carries the messages between ranks, as far as predictions differ in how well they hold.
enum class Wire {
  kSharedMemory,  ///< the ranks' own processors move the data within a host
  kOneHost,       ///< sockets of one host (Gloo)
  kNetwork        ///< between hosts
};

/// The share by which predictions of a step missed what it then took, |predicted / measured - 1|:
/// nineteen in twenty of those over such a wire missed by at most that, rounded up to a whole
/// percent, so that an interval holds nine in ten later ones. It is from the 162 predictions of the
/// first three rounds in docs/benchmarks/simulate.md, all for two ranks, and counts the disturbed
/// ones. `has_small_buckets`: the gradients travel in several buckets of less than 64 KiB
/// on average, each of which waits for a thread that wakes up, unless the wire is shared memory.
double error_share(Wire wire, bool has_small_buckets);

/// How long a thread that moves data waits for the processor of the thread that computes: until the
/// scheduler's next tick (CONFIG_HZ=250, which Debian and Ubuntu have). A step waits for about one.
constexpr double kSchedulerTickSeconds = 0.004;

struct SecondsInterval {
  double low = 0;
  double high = 0;
};
/// The seconds that a step of `seconds` takes where the prediction misses by at most `share`, which
/// is below 1, and where the step waits for up to `late_seconds` that are not predicted.
SecondsInterval interval_around(double seconds, double share, double late_seconds = 0);

}  // namespace lockstep
