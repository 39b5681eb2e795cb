// Records when each bucket of the last steps was ready, started and completed.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <torch/types.h>

#include <lockstep/core/clock.h>
#include <lockstep/parallel/base/stream_clock.h>

namespace lockstep::detail {

struct BucketTimes {
  Clock::time_point ready{};  ///< when its last gradient arrived
  Clock::time_point start{};  ///< when its reduction began, after those of earlier buckets
  /// When this rank noticed the completion. On a device: when the computing stream could continue
  /// after it, which is never before the end of backward.
  Clock::time_point end{};
};

/// The times of one backward that communicated.
struct StepTimes {
  Clock::time_point begin{};     ///< end of the previous reduction; from here the rank works alone
  Clock::time_point backward{};  ///< the first gradient
  Clock::time_point computed{};  ///< the last gradient
  Clock::time_point reduced{};   ///< the last bucket completed
  std::vector<BucketTimes> buckets{};
};

/// Keeps the last kSteps steps; recording allocates nothing after the first kSteps. On a device all
/// times are those at which the device did the work, not those at which the host queued it:
/// settle() makes them known, and recording does not wait for them. A step that is captured into a
/// graph (is_capturing()) has the host's times. Not thread-safe.
class StepRecorder {
 public:
  static constexpr std::size_t kSteps = 128;

  /// From the next step on, measures times on `device`'s current stream, or on the host for a CPU.
  void measure_on(torch::Device device);

  void begin(std::size_t buckets);
  void ready(std::size_t bucket);
  void start(std::size_t bucket);
  void end(std::size_t bucket);
  void computed();
  void reduced();
  /// Whether the current step has the device's times.
  bool is_on_device() const { return is_on_device_; }

  /// Waits for the device to reach the end of the last step, and makes the times of all steps
  /// known. No-op on a CPU.
  void settle();

  /// Forgets all steps, because the buckets change.
  void clear();
  /// The number of steps that have ended since construction.
  std::int64_t steps() const { return steps_; }
  /// The total exposed communication of all steps whose times are known.
  double exposed_seconds() const { return exposed_seconds_; }
  /// The last steps, oldest first. Call settle() first.
  std::vector<StepTimes> last() const;

 private:
  /// A moment of a step, and the time in StepTimes to which it belongs.
  struct Mark {
    Clock::time_point StepTimes::* of_step = nullptr;
    Clock::time_point BucketTimes::* of_bucket = nullptr;
    std::size_t bucket = 0;
    StreamClock::Moment moment;
  };

  StepTimes& current() { return ring_[next_]; }
  void note(Clock::time_point StepTimes::* time);
  void note(Clock::time_point BucketTimes::* time, std::size_t bucket);
  void finish(StepTimes& step);
  StepTimes& step_before(std::size_t steps) { return ring_[(next_ + kSteps - steps) % kSteps]; }
  void resolve_oldest();
  void follow_host_clock();

  std::vector<StepTimes> ring_ = std::vector<StepTimes>(kSteps);
  std::size_t next_ = 0;  // index of the current step
  std::size_t kept_ = 0;
  std::int64_t steps_ = 0;
  double exposed_seconds_ = 0;
  Clock::time_point last_end_ = Clock::now();

  // On a device:
  std::optional<StreamClock> device_;
  bool is_on_device_ = false;
  std::vector<std::vector<Mark>> marks_;       // parallel to the ring; empty if the times are known
  std::size_t unknown_ = 0;                    // number of latest steps whose times are unknown
  std::size_t unaligned_ = 0;                  // number of steps since the last settle()
  std::optional<StreamClock::Moment> anchor_;  // reached by the device at anchor_time_
  Clock::time_point anchor_time_{};
};

}  // namespace lockstep::detail
