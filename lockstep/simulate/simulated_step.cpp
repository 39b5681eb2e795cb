#include <lockstep/simulate/simulated_step.h>

#include <algorithm>
#include <limits>

namespace lockstep::simulate {
namespace {

// The state of the replay.
struct Moment {
  double time = 0;      // since backward began
  double computed = 0;  // part of backward's computing
};

// Runs backward without transfers until it has computed `until`.
void compute_to(double until, Moment& now) {
  now.time += std::max(0.0, until - now.computed);
  now.computed = std::max(now.computed, until);
}

// Runs a transfer from its beginning to its end, beside the rest of backward. Returns the time when
// backward ended, if it ended meanwhile.
double transfer(const BucketTransfer& bucket, double compute_seconds, Moment& now) {
  double left = 1;  // remaining share of the transfer
  double ended = -1;
  if (now.computed < compute_seconds && bucket.beside_seconds > 0) {
    const double speed = 1 - bucket.taken_seconds / bucket.beside_seconds;
    const double to_end = speed > 0 ? (compute_seconds - now.computed) / speed
                                    : std::numeric_limits<double>::infinity();
    if (to_end >= bucket.beside_seconds) {
      now.computed = std::min(compute_seconds, now.computed + speed * bucket.beside_seconds);
      now.time += bucket.beside_seconds;
      return ended;
    }
    left -= to_end / bucket.beside_seconds;
    now.time += to_end;
    now.computed = compute_seconds;
    ended = now.time;
  }
  now.time += left * bucket.alone_seconds;
  return ended;
}

}  // namespace

SimulatedBackward simulate_backward(double compute_seconds,
                                    const std::vector<BucketTransfer>& transfers) {
  SimulatedBackward result{.backward_seconds = -1};
  Moment now;
  for (const BucketTransfer& bucket : transfers) {
    compute_to(bucket.ready_seconds, now);
    if (now.computed >= compute_seconds && result.backward_seconds < 0) {
      result.backward_seconds = now.time;
    }
    const double begin = now.time;
    const double ended = transfer(bucket, compute_seconds, now);
    if (ended >= 0) result.backward_seconds = ended;
    result.transfers.push_back({.begin = begin, .end = now.time});
  }
  compute_to(compute_seconds, now);
  if (result.backward_seconds < 0) result.backward_seconds = now.time;
  result.exposed_seconds = now.time - result.backward_seconds;
  return result;
}

}  // namespace lockstep::simulate
