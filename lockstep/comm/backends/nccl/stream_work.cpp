#include <lockstep/comm/backends/nccl/stream_work.h>

#include <algorithm>
#include <thread>
#include <utility>

#include <lockstep/comm/backends/nccl/in_flight.h>
#include <lockstep/comm/call/device_stream.h>
#include <lockstep/core/error.h>

namespace lockstep::nccl {
namespace {

constexpr std::chrono::milliseconds kOnStream = c10d::Store::kNoTimeout;
// The pause between two queries of a waiting caller. LibTorch's own wait is not used: it sleeps for
// a millisecond between queries, and its deadline counts from the start of the operation.
constexpr std::chrono::microseconds kLeastAskPause{5};
constexpr std::chrono::milliseconds kMostAskPause{1};

// The end of an operation that a graph captures cannot be queried. It is reported to the peers as
// over when it is called.
std::shared_ptr<StreamOperation> put_in_flight(StreamContext& context, const WorkHandle& handle,
                                               const Call& call) {
  if (!context.device().is_capturing()) return context.in_flight().add(handle, call);
  if (call.number) context.watchdog().note(call.description, *call.number);
  return nullptr;
}

}  // namespace

StreamWork::StreamWork(std::shared_ptr<StreamContext> context, WorkHandle handle, Call call,
                       std::function<void()> finish)
    : context_(std::move(context)),
      handle_(std::move(handle)),
      call_(std::move(call)),
      operation_(put_in_flight(*context_, handle_, call_)),
      finish_(std::move(finish)) {}

StreamWork::~StreamWork() {
  if (operation_) context_->in_flight().free_ended();
}

std::exception_ptr StreamWork::error() const {
  const std::scoped_lock lock(mutex_);
  if (error_) return error_;
  return operation_ ? operation_->error() : nullptr;
}

void StreamWork::on_end(std::function<void(std::exception_ptr)> listener) {
  if (!operation_) return listener(nullptr);
  operation_->on_end(std::move(listener));
}

// Stores the error that `function` throws, so that later waits throw it as well.
template <class Function>
void StreamWork::keeping_error(Function&& function) {
  try {
    function();
  } catch (...) {
    const std::scoped_lock lock(mutex_);
    if (!error_) error_ = std::current_exception();
    throw;
  }
}

void StreamWork::wait(std::optional<std::chrono::milliseconds> timeout) {
  const bool blocks = operation_ && (timeout || is_barrier());
  {
    const std::scoped_lock lock(mutex_);
    if (error_) std::rethrow_exception(error_);
    keeping_error([&] { context_->watchdog().throw_if_ended(); });
    check_capture(blocks);
    keeping_error([&] { join_stream(blocks); });
  }
  if (operation_) context_->in_flight().free_ended();
  if (!blocks) return;
  keeping_error([&] { wait_for_device(timeout.value_or(context_->options().timeout)); });
}

// Requires the lock. A graph must not wait for operations outside it, and a thread must not block
// while it captures one.
void StreamWork::check_capture(bool blocks) const {
  if (!operation_ && !joined_ && !context_->device().is_capturing()) {
    throw ConfigError(lockstep::str(context_->own_name(), ": wait: ", call_.text(),
                                    " was captured in a graph, and no stream outside it can wait "
                                    "for it; wait for it before the "
                                    "end of the capture"));
  }
  if (!operation_ || (joined_ && !blocks) || !context_->device().is_capturing()) return;
  throw ConfigError(lockstep::str(
      context_->own_name(), ": wait: ", call_.text(),
      " began before this thread's stream was captured in a graph, which cannot wait for it; wait "
      "for it before the capture"));
}

// Requires the lock. Called in each wait, because every caller has its own stream. LibTorch's wait
// is not used for a barrier: it would block in the driver, where an abort is not noticed, and would
// query the barrier's end even during a capture.
void StreamWork::join_stream(bool blocks) {
  // A graph must not wait for an operation outside it, nor a stream for one inside.
  const bool is_in_graph = operation_ == nullptr;
  if (joined_ && context_->device().is_capturing() != is_in_graph) return;
  try {
    if (blocks || is_barrier()) {
      handle_->synchronize();
    } else {
      handle_->wait(kOnStream);
    }
  } catch (const std::exception& error) {
    context_->fail(call_, error.what());
  }
  finish();
}

// The operation's own event covers the work of the library, but not the work that finish_ queues in
// the stream of the first caller.
void StreamWork::finish() {
  if (!std::exchange(joined_, true) && finish_) {
    finish_();
    const torch::Device device = context_->options().device;
    if (!device.is_cpu()) finished_ = comm::mark_stream(device);
  } else if (finished_) {
    comm::let_stream_wait(*finished_);
  }
  finish_ = nullptr;  // frees the tensors that it holds
}

void StreamWork::wait_for_device(std::chrono::milliseconds limit) {
  const auto start = Clock::now();
  const Deadline deadline(limit);
  while (!context_->in_flight().ask(*operation_)) {
    context_->watchdog().throw_if_ended();
    if (deadline.expired()) context_->time_out(call_, limit);
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(
        deadline.remaining(), pause_after(Clock::now() - start, kLeastAskPause, kMostAskPause)));
  }
  if (const auto error = operation_->error()) std::rethrow_exception(error);
}

bool StreamWork::is_completed() {
  const std::scoped_lock lock(mutex_);
  if (error_) return true;
  if (!operation_) return joined_;
  // A thread whose stream is captured must not query the device, but may use the answers that other
  // threads got.
  const bool capturing = context_->device().is_capturing();
  if (!(capturing ? operation_->has_ended() : context_->in_flight().ask(*operation_))) return false;
  if (operation_->error()) return true;
  if (capturing) return joined_;  // a graph must not wait for operations outside it
  try {
    joined_ ? finish() : join_stream(/*blocks=*/true);
  } catch (...) {
    error_ = std::current_exception();
  }
  return true;
}

}  // namespace lockstep::nccl
