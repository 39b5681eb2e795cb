// When the buckets of the last steps were ready, sent and back.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <torch/types.h>

#include <lockstep/core/clock.h>
#include <lockstep/parallel/base/stream_clock.h>

namespace lockstep {

struct BucketTimes {
  Clock::time_point ready{};  ///< its last gradient was there
  Clock::time_point start{};  ///< its reduction began: in turn, after the buckets before it
  /// When this rank noticed the end. On a device: when the stream that computes could go on behind
  /// it, which is not before the end of backward.
  Clock::time_point end{};
};

/// One backward that communicated.
struct StepTimes {
  Clock::time_point begin{};     ///< the end of the reduction before; from here this rank is alone
  Clock::time_point backward{};  ///< the first gradient
  Clock::time_point computed{};  ///< the last gradient
  Clock::time_point reduced{};   ///< the last bucket is back
  std::vector<BucketTimes> buckets{};
};

/// Keeps the last kSteps steps; recording allocates nothing after the first of them. On a device
/// all times are the device's, not those at which the host handed work over: they become known by
/// settle(), and recording does not wait for them. A step that is captured into a graph
/// (is_capturing()) has the host's times. Not thread-safe.
class StepRecorder {
 public:
  static constexpr std::size_t kSteps = 128;

  /// From the next step on, times are those of `device`'s current stream; a CPU: those of the host.
  void measure_on(torch::Device device);

  void begin(std::size_t buckets);
  void ready(std::size_t bucket);
  void start(std::size_t bucket);
  void end(std::size_t bucket);
  void computed();
  void reduced();
  /// Whether the present step has the device's times.
  bool is_on_device() const { return is_on_device_; }

  /// Waits for the device to reach the end of the last step, and makes the times of all steps
  /// known. Does nothing on a CPU.
  void settle();

  /// Forgets the steps: the buckets are others from here on.
  void clear();
  /// All that ever ended.
  std::int64_t steps() const { return steps_; }
  /// The exposed communication of all steps whose times are known.
  double exposed_seconds() const { return exposed_seconds_; }
  /// The last ones, the oldest first. Call settle() first.
  std::vector<StepTimes> last() const;

 private:
  /// A moment of a step, and which of its times that is.
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
  std::size_t next_ = 0;  // place of the current step
  std::size_t kept_ = 0;
  std::int64_t steps_ = 0;
  double exposed_seconds_ = 0;
  Clock::time_point last_end_ = Clock::now();

  // On a device:
  std::optional<StreamClock> device_;
  bool is_on_device_ = false;
  std::vector<std::vector<Mark>> marks_;       // beside the ring; empty where the times are known
  std::size_t unknown_ = 0;                    // the last steps, whose times are not
  std::size_t unaligned_ = 0;                  // the last steps since settle()
  std::optional<StreamClock::Moment> anchor_;  // the device has reached it, at anchor_time_
  Clock::time_point anchor_time_{};
};

}  // namespace lockstep
