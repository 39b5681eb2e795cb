// The errors of earlier predictions, compared with later measurements.
#pragma once

namespace lockstep::simulate {

/// The transport between ranks, in the classes for which predictions differ in accuracy.
enum class Wire {
  kSharedMemory,  ///< the ranks' own processors move the data within a host
  kOneHost,       ///< sockets of one host (Gloo)
  kNetwork        ///< between hosts
};

/// The relative error of a predicted step, |predicted / measured - 1|. In 19 of 20 earlier
/// predictions over such a wire, the error was at most this value (rounded up to a whole percent),
/// so that an interval holds nine in ten later measurements. The data are the 162 predictions of
/// the first three rounds in docs/benchmarks/simulate.md, all for two ranks, including disturbed
/// ones. `has_small_buckets` means that the gradients travel in several buckets of less than 64 KiB
/// on average. Each such bucket waits for a thread to wake up, unless the wire is shared memory.
double error_share(Wire wire, bool has_small_buckets);

/// How long a thread that moves data waits for the processor of the computing thread: up to the
/// scheduler's next tick (CONFIG_HZ=250, as in Debian and Ubuntu). A step has about one such wait.
constexpr double kSchedulerTickSeconds = 0.004;

struct SecondsInterval {
  double low = 0;
  double high = 0;
};
/// The range of the duration of a step that is predicted to take `seconds`, if the relative error
/// is at most `share` (below 1) and the step has up to `late_seconds` of waits that are not
/// predicted.
SecondsInterval interval_around(double seconds, double share, double late_seconds = 0);

}  // namespace lockstep::simulate
