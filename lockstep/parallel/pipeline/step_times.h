// Measures when the workers of a step performed their actions. A device performs an action long
// after the host has queued it, so the device's own clock is used.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <torch/types.h>

#include <lockstep/core/clock.h>
#include <lockstep/parallel/base/stream_clock.h>
#include <lockstep/parallel/pipeline/schedule/executor.h>

namespace lockstep::pipeline {

using lockstep::detail::StreamClock;

/// Marks the beginnings of a worker's actions on its device. Not thread-safe, but different threads
/// may use it one after the other.
class WorkerClock {
 public:
  explicit WorkerClock(torch::Device device);

  /// Discards the moments of an earlier step that take() did not return.
  void begin();
  /// Must be called before the worker's first action and after each action. A no-op on a CPU, and
  /// while a graph is being captured, because moments in a captured graph have no times.
  void mark();
  /// The moments marked since begin().
  std::vector<StreamClock::Moment> take();

  StreamClock::Moment record() { return clock_->record(); }
  void recycle(StreamClock::Moment moment) { clock_->recycle(std::move(moment)); }

 private:
  std::optional<StreamClock> clock_;  // empty on a CPU
  std::vector<StreamClock::Moment> moments_;
};

/// The times of one step. Call its functions only while the workers are idle.
class StepTimes {
 public:
  /// `actions` and `recordings` have an entry for each worker of the step's table. `clocks` hold
  /// the marks of this step; null is allowed for a worker without a recording.
  StepTimes(std::vector<std::vector<Action>> actions, std::vector<Recording> recordings,
            std::vector<std::shared_ptr<WorkerClock>> clocks);
  ~StepTimes();
  StepTimes(const StepTimes&) = delete;
  StepTimes& operator=(const StepTimes&) = delete;

  /// Whether the devices have finished the step. Does not wait.
  bool is_known() const;
  /// How long each action took. The workers have no common clock: each worker's times begin at 0.
  /// Waits until the times are known.
  Timeline durations() const { return timeline_of(actions_, recordings(/*aligned=*/false)); }
  /// The times of all workers on one clock. Waits for all work that is queued on their devices.
  const Timeline& timeline() const;
  /// When `worker` began its first action of timeline(), by the host's clock.
  Clock::time_point began(std::size_t worker) const;

 private:
  struct DeviceTimes {
    std::shared_ptr<WorkerClock> clock{};
    std::vector<StreamClock::Moment> moments{};        // empty on a CPU
    mutable std::optional<Clock::time_point> began{};  // set when the device is first queried
  };
  std::vector<Recording> recordings(bool aligned) const;

  std::vector<std::vector<Action>> actions_;
  std::vector<Recording> recordings_;  // by the host's clock
  std::vector<DeviceTimes> devices_;
  mutable std::optional<Timeline> timeline_;  // set when timeline() is first called
};

}  // namespace lockstep::pipeline
