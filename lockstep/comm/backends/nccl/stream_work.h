// Work for operations that a library (NCCL) runs in streams of a device.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include <c10/core/Event.h>

#include <lockstep/comm/backends/nccl/stream_context.h>
#include <lockstep/comm/backends/nccl/stream_operation.h>
#include <lockstep/comm/call/stream_ordered.h>
#include <lockstep/comm/call/work.h>

namespace lockstep::nccl {

/// A wait() without a timeout makes the current stream wait, not the caller, unless the operation
/// is a barrier. While the current stream is captured into a graph, wait() for an operation that
/// began before the capture throws ConfigError, unless a stream has already waited for it and there
/// is no timeout. Safe to use from several threads.
class StreamWork final : public Work, public comm::StreamOrdered {
 public:
  /// `finish` queues the work that turns the library's result into the result of the call, on the
  /// current stream. It runs once, in the first wait. The streams of later callers wait for that
  /// work.
  StreamWork(std::shared_ptr<StreamContext> context, WorkHandle handle, Call call,
             std::function<void()> finish);

  ~StreamWork() override;
  void wait(std::optional<std::chrono::milliseconds> timeout) override;
  bool is_completed() override;
  std::exception_ptr error() const override;
  void on_end(std::function<void(std::exception_ptr)> listener) override;

 private:
  void check_capture(bool blocks) const;
  void join_stream(bool blocks);
  void finish();
  void wait_for_device(std::chrono::milliseconds limit);
  bool is_barrier() const { return call_.description.kind == CallKind::kBarrier; }
  template <class Function>
  void keeping_error(Function&& function);

  const std::shared_ptr<StreamContext> context_;
  const WorkHandle handle_;
  const Call call_;
  /// Null if the operation was captured into a graph.
  const std::shared_ptr<StreamOperation> operation_;
  mutable std::recursive_mutex mutex_;  // guards the members below
  std::function<void()> finish_;
  bool joined_ = false;                 // a stream waits for the operation
  std::optional<c10::Event> finished_;  // the end of the work that finish_ queued
  std::exception_ptr error_;
};

}  // namespace lockstep::nccl
