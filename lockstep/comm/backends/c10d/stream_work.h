// Operations of a library that runs them in streams of a device (NCCL) as Works.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include <c10/core/Event.h>

#include <lockstep/comm/backends/c10d/context.h>
#include <lockstep/comm/backends/c10d/stream_operation.h>
#include <lockstep/comm/call/stream_ordered.h>
#include <lockstep/comm/call/work.h>

namespace lockstep::c10d_adapter {

/// A wait() without a timeout makes the current stream wait, not the caller, unless the operation
/// is a barrier. While the current stream is captured into a graph, waiting for what began before
/// is a ConfigError, unless a stream waited already and there is no timeout. Safe to use from
/// several threads.
class StreamWork final : public Work, public StreamOrdered {
 public:
  /// `finish` queues on the current stream what turns the library's result into what was asked for.
  /// It runs once, in the first wait; the streams of later callers wait for what it queued.
  StreamWork(std::shared_ptr<Context> context, WorkHandle handle, Call call,
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

  const std::shared_ptr<Context> context_;
  const WorkHandle handle_;
  const Call call_;
  /// Null where a graph captures it.
  const std::shared_ptr<StreamOperation> operation_;
  mutable std::recursive_mutex mutex_;  // guards the members below
  std::function<void()> finish_;
  bool joined_ = false;                 // a stream waits for it
  std::optional<c10::Event> finished_;  // the end of what finish_ queued
  std::exception_ptr error_;
};

}  // namespace lockstep::c10d_adapter
