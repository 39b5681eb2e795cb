// The Work that ProcessGroup returns: a backend's Work plus the steps that remain once it has
// ended.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <torch/types.h>

#include <lockstep/comm/call/outcome.h>
#include <lockstep/comm/call/work.h>
#include <lockstep/comm/group/call_log.h>
#include <lockstep/comm/group/device_copies.h>

namespace lockstep::comm {

/// Copies results to the caller's tensors, once, and reports the outcome to the log. Copies to a
/// device are queued in the current stream of the thread that finds the operation complete, and the
/// streams of all threads that call wait(), or is_completed() with success, wait for them. Copies
/// from the host to a device also wait for the work that the constructing thread's stream held at
/// construction. While a graph captures streams of that device, wait() for an operation with such
/// copies throws ConfigError and is_completed() returns false. Safe to use from several threads.
class GroupWork final : public Work {
 public:
  /// `runs_on_stream` is the backend's runs_on_stream(). If it is true, a StreamOrdered Work
  /// reports its end on the device to the log.
  GroupWork(std::shared_ptr<Work> work, TensorPairs copies, std::shared_ptr<CallLog> log,
            FlightRecorder::Id id, bool runs_on_stream);

  void wait(std::optional<std::chrono::milliseconds> timeout) override;
  bool is_completed() override;
  std::exception_ptr error() const override;
  int source_rank() const override { return work_->source_rank(); }

 private:
  bool has_ended();
  void check_stream() const;
  void follow_copies() const;
  bool is_known() const;
  std::exception_ptr finish();
  void fail(std::exception_ptr error);

  const std::shared_ptr<Work> work_;
  TensorPairs copies_;
  const std::shared_ptr<CallLog> log_;
  const FlightRecorder::Id id_;
  const std::optional<torch::Device> device_;  // receives results from the host
  const std::optional<c10::Event> called_;     // work in the stream at the time of the call
  const bool log_hears_later_;                 // the Work reports its end to the log
  std::timed_mutex work_mutex_;                // held by the thread that queries the backend's Work
  // Guards the members below; whether `outcome_` has ended may be asked without it.
  mutable std::mutex mutex_;
  Outcome outcome_;
  std::optional<c10::Event> arrived_;  // completes once the results are in the caller's tensors
  bool copied_in_graph_ = false;
};

/// Combines several operations into one Work and waits for them in order.
class WorkList final : public Work {
 public:
  explicit WorkList(std::vector<std::shared_ptr<Work>> works) : works_(std::move(works)) {}

  void wait(std::optional<std::chrono::milliseconds> timeout) override;
  bool is_completed() override;
  std::exception_ptr error() const override;

 private:
  std::vector<std::shared_ptr<Work>> works_;
};

}  // namespace lockstep::comm
