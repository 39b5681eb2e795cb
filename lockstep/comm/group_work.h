// The Work that ProcessGroup returns: a backend's, with what is left to do at its end.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <torch/types.h>

#include <lockstep/comm/call_log.h>
#include <lockstep/comm/work.h>

namespace lockstep {

using TensorPairs = std::vector<std::pair<torch::Tensor, torch::Tensor>>;

/// Copies results to where the caller wants them, once, and tells the log how it ended. Safe to use
/// from several threads.
class GroupWork final : public Work {
 public:
  GroupWork(std::shared_ptr<Work> work, TensorPairs copies, std::shared_ptr<CallLog> log,
            FlightRecorder::Id id)
      : work_(std::move(work)), copies_(std::move(copies)), log_(std::move(log)), id_(id) {}

  void wait(std::optional<std::chrono::milliseconds> timeout) override;
  bool is_completed() override;
  std::exception_ptr error() const override;
  int source_rank() const override { return work_->source_rank(); }

 private:
  enum class State { kRunning, kDone, kFailed };
  std::exception_ptr finish();
  void fail(std::exception_ptr error);

  const std::shared_ptr<Work> work_;
  TensorPairs copies_;
  const std::shared_ptr<CallLog> log_;
  const FlightRecorder::Id id_;
  std::timed_mutex work_mutex_;  // one thread at a time asks the backend's Work
  mutable std::mutex mutex_;  // guards what follows
  State state_ = State::kRunning;
  std::exception_ptr error_;
};

/// Several operations as one; waits for them in their order.
class WorkList final : public Work {
 public:
  explicit WorkList(std::vector<std::shared_ptr<Work>> works) : works_(std::move(works)) {}

  void wait(std::optional<std::chrono::milliseconds> timeout) override;
  bool is_completed() override;
  std::exception_ptr error() const override;

 private:
  std::vector<std::shared_ptr<Work>> works_;
};

}  // namespace lockstep
