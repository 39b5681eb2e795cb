// The Work that ProcessGroup returns: a backend's, with what is left to do at its end.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <torch/types.h>

#include <lockstep/comm/call/work.h>
#include <lockstep/comm/group/call_log.h>
#include <lockstep/comm/group/device_copies.h>

namespace lockstep {

/// Copies results to where the caller wants them, once, and tells the log how it ended. Results for
/// a device are queued in the current stream of the thread that finds the operation complete,
/// behind what the stream of the thread that made this holds; the stream of every thread that calls
/// wait() waits for them. While a graph captures streams of that device, wait() is a ConfigError,
/// and is_completed() false. Safe to use from several threads.
class GroupWork final : public Work {
 public:
  /// `runs_on_stream`: the backend's. The log hears of the end of a StreamOrdered Work on the
  /// device.
  GroupWork(std::shared_ptr<Work> work, TensorPairs copies, std::shared_ptr<CallLog> log,
            FlightRecorder::Id id, bool runs_on_stream);

  void wait(std::optional<std::chrono::milliseconds> timeout) override;
  bool is_completed() override;
  std::exception_ptr error() const override;
  int source_rank() const override { return work_->source_rank(); }

 private:
  enum class State { kRunning, kDone, kFailed };
  bool has_ended();
  void check_stream() const;
  bool is_known() const;
  std::exception_ptr finish();
  void fail(std::exception_ptr error);

  const std::shared_ptr<Work> work_;
  TensorPairs copies_;
  const std::shared_ptr<CallLog> log_;
  const FlightRecorder::Id id_;
  const std::optional<torch::Device> device_;  // to which results are copied from the host
  const std::optional<c10::Event> called_;     // what its stream held at the call
  const bool log_hears_later_;                 // from the Work
  std::timed_mutex work_mutex_;                // one thread at a time asks the backend's Work
  mutable std::mutex mutex_;                   // guards what follows
  State state_ = State::kRunning;
  std::exception_ptr error_;
  std::optional<c10::Event> arrived_;  // the results, on their device
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
