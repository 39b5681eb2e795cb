// Reports of steps whose losses are still on a device. Internal to lockstep/train.
#pragma once

#include <cstdint>
#include <deque>

#include <c10/core/Event.h>
#include <torch/types.h>

#include <lockstep/train/task/listener.h>

namespace lockstep::train {

/// Keeps reports until their losses have been copied to the host, without blocking it. Not
/// thread-safe.
class StepReports {
 public:
  /// Adds `report` without its loss. The loss is `loss_sum`, a tensor of one element on a device,
  /// divided by `parts`. Queues a copy of the loss after the work on the current stream.
  void add(const StepReport& report, const torch::Tensor& loss_sum, std::int64_t parts);

  bool empty() const { return waiting_.empty(); }
  /// Whether the oldest report has its loss. Does not wait.
  bool has_one() const { return !waiting_.empty() && waiting_.front().arrived.query(); }
  /// Removes the oldest report, with its loss; waits for the loss if has_one() is false.
  StepReport take();

 private:
  struct Waiting {
    StepReport report;
    torch::Tensor loss_sum;  // in pinned memory
    std::int64_t parts;
    c10::Event arrived;
  };
  std::deque<Waiting> waiting_;
};

}  // namespace lockstep::train
