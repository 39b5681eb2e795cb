// When the buckets of the last steps were ready, sent and back.
#pragma once

#include <cstdint>
#include <vector>

#include <lockstep/core/clock.h>

namespace lockstep {

struct BucketTimes {
  Clock::time_point ready{};  ///< its last gradient was there
  Clock::time_point start{};  ///< its reduction began: in turn, after the buckets before it
  Clock::time_point end{};    ///< when this rank noticed the end
};

/// One backward that communicated.
struct StepTimes {
  Clock::time_point begin{};     ///< the end of the reduction before; from here this rank is alone
  Clock::time_point backward{};  ///< the first gradient
  Clock::time_point computed{};  ///< the last gradient
  Clock::time_point reduced{};   ///< the last bucket is back
  std::vector<BucketTimes> buckets{};
};

/// Keeps the last kSteps steps; recording allocates nothing after the first of them. Not thread-safe.
class StepRecorder {
 public:
  static constexpr std::size_t kSteps = 128;

  void begin(std::size_t buckets);
  void ready(std::size_t bucket) { current().buckets[bucket].ready = Clock::now(); }
  void start(std::size_t bucket) { current().buckets[bucket].start = Clock::now(); }
  void end(std::size_t bucket) { current().buckets[bucket].end = Clock::now(); }
  void computed() { current().computed = Clock::now(); }
  void reduced();

  /// Forgets the steps: the buckets are others from here on.
  void clear() { kept_ = 0; }
  /// All that ever ended.
  std::int64_t steps() const { return steps_; }
  double exposed_seconds() const { return exposed_seconds_; }
  /// The last ones, the oldest first.
  std::vector<StepTimes> last() const;

 private:
  StepTimes& current() { return ring_[next_]; }

  std::vector<StepTimes> ring_ = std::vector<StepTimes>(kSteps);
  std::size_t next_ = 0;  // place of the current step
  std::size_t kept_ = 0;
  std::int64_t steps_ = 0;
  double exposed_seconds_ = 0;
  Clock::time_point last_end_ = Clock::now();
};

}  // namespace lockstep
