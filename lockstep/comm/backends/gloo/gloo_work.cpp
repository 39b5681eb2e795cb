#include <lockstep/comm/backends/gloo/gloo_work.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include <lockstep/comm/backends/c10d/library_error.h>
#include <lockstep/core/error.h>

namespace lockstep::gloo {
namespace {

using c10d_adapter::essence;
using c10d_adapter::kInquiry;
using c10d_adapter::kInquiryPause;

// The longest wait in the library. Such a wait does not notice an abort, a peer that left, or an
// operation of another thread that this thread must advance.
constexpr std::chrono::milliseconds kLook{250};
// The interval while other operations are under way, in case nothing reports their progress.
constexpr std::chrono::milliseconds kBusyLook{20};
// A wait makes the watchdog look more often from this time before its deadline, so that the error
// describes the current state of the other ranks.
constexpr std::chrono::milliseconds kLastLooks{350};
// The timeout of a thread whose only task is to wait for one message.
constexpr std::chrono::hours kAnyTime{24};

std::chrono::milliseconds left(const Deadline& deadline) {
  return std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining());
}

}  // namespace

// --- OperationWork -------------------------------------------------------------------------------

OperationWork::OperationWork(std::shared_ptr<GlooContext> context, WorkHandle handle, Call call)
    : context_(std::move(context)),
      handle_(std::move(handle)),
      call_(std::move(call)),
      ticket_(call_.part_of_schedule
                  ? std::nullopt
                  : std::optional(context_->watchdog().started(call_.description, call_.number))) {}

bool OperationWork::is_completed() {
  expect_looks();
  return step();
}

std::exception_ptr OperationWork::error() const {
  const std::scoped_lock lock(mutex_);
  return outcome_.error();
}

bool OperationWork::is_settled() const {
  const std::scoped_lock lock(mutex_);
  return outcome_.has_ended();
}

// Nobody can wait for the operation any more, so the watchdog must not report it as this rank's
// current call.
OperationWork::~OperationWork() {
  if (!is_settled() && ticket_) context_->watchdog().completed(*ticket_);
}

bool OperationWork::is_inquiring() const {
  const std::scoped_lock lock(mutex_);
  return inquiry_.has_value();
}

void OperationWork::settle(std::exception_ptr error) {
  outcome_.end(std::move(error));
  if (ticket_) context_->watchdog().completed(*ticket_);
  if (is_through()) context_->release(handle_);
}

void OperationWork::settle_with_error_of(const std::function<void()>& function) {
  const std::scoped_lock lock(mutex_);
  if (outcome_.has_ended()) return;
  try {
    function();
  } catch (...) {
    settle(std::current_exception());
  }
}

void OperationWork::rethrow() const {
  const std::scoped_lock lock(mutex_);
  outcome_.rethrow();
}

bool OperationWork::step() {
  const std::scoped_lock lock(mutex_);
  if (outcome_.has_ended()) return true;
  if (!inquiry_) {
    std::string failure;
    if (!library_ended(failure)) {
      settle_with_error_of([&] { context_->check_departed(call_); });
      return outcome_.has_ended();
    }
    if (failure.empty()) {
      settle_with_error_of([&] { finish(); });
      if (!outcome_.has_ended()) settle();
      return true;
    }
    failure_ = std::move(failure);
    inquiry_.emplace(kInquiry);
    // Gloo's timeout counts from the start of the operation, so it can expire before the wait's.
    if (failure_.find("imed out") != std::string::npos) {
      settle_with_error_of([&] { context_->time_out(call_, context_->options().timeout); });
      return true;
    }
  }
  settle_with_error_of([&] { context_->explain(call_, failure_, *inquiry_); });
  return outcome_.has_ended();
}

void OperationWork::wait_until(std::chrono::milliseconds limit,
                               const std::function<void(std::chrono::milliseconds)>& wait_once) {
  const Deadline deadline(limit);
  comm::Progress& progress = context_->progress();
  bool hurried = false;
  while (!step()) {
    if (left(deadline) < kLastLooks && !std::exchange(hurried, true)) context_->watchdog().hurry();
    if (is_inquiring()) {
      context_->watchdog().wait_for_news(kInquiryPause);
    } else if (left(deadline).count() == 0) {
      settle_with_error_of([&] { context_->time_out(call_, limit); });
    } else if (progress.needs_a_hand()) {
      expect_looks();
      progress.pause(std::min(left(deadline), kBusyLook), [&] { return step(); });
    } else {
      wait_once(std::min(left(deadline), kLook));
    }
  }
  rethrow();
}

// --- Collectives ---------------------------------------------------------------------------------

CollectiveWork::CollectiveWork(std::shared_ptr<GlooContext> context, WorkHandle handle, Call call,
                               std::function<void()> finish)
    : OperationWork(std::move(context), std::move(handle), std::move(call)),
      finish_(std::move(finish)) {}

bool CollectiveWork::library_ended(std::string& failure) {
  if (!handle_->isCompleted()) {
    // Gloo completes the future, whose callback wakes the waiting threads, just before the Work.
    if (!handle_->getFuture()->completed()) return false;
    try {
      handle_->wait(kLook);
    } catch (const std::exception&) {
      if (!handle_->isCompleted()) return false;
    }
  }
  if (const auto error = handle_->exception()) failure = essence(error);
  return true;
}

void CollectiveWork::expect_looks() {
  std::call_once(listens_, [&] {
    handle_->getFuture()->addCallback(
        [progress = context_->progress_pointer()](c10::ivalue::Future&) { progress->ring(); });
  });
}

// When a peer dies, the operation is settled before the library ends it. The library may never do
// so: Gloo forgets a send on a connection that is just being closed.
bool CollectiveWork::is_through() const { return handle_->isCompleted(); }

void CollectiveWork::finish() {
  handle_->synchronize();
  if (finish_) finish_();
  finish_ = nullptr;  // frees the tensors that it holds
}

void CollectiveWork::wait(std::optional<std::chrono::milliseconds> timeout) {
  wait_until(timeout.value_or(context_->options().timeout), [&](std::chrono::milliseconds most) {
    try {
      handle_->wait(most);
    } catch (const std::exception&) {
      // The operation failed, or `most` is over. step() finds out which.
    }
  });
}

// --- Point-to-point ------------------------------------------------------------------------------

// The message's transfer. It continues, and this object lives on, if the Work is dropped. Only one
// thread at a time waits in the library, which would report the end to just one of several.
struct PointToPointWork::Job {
  Job(WorkHandle handle, std::function<void()> deliver)
      : handle(std::move(handle)), deliver(std::move(deliver)) {}

  bool claim() {
    const std::scoped_lock lock(mutex);
    return !done && !std::exchange(claimed, true);
  }
  void unclaim() {
    const std::scoped_lock lock(mutex);
    claimed = false;
    changed.notify_all();
  }

  // Called by the thread that has claimed the job. False if the wait timed out or was interrupted.
  bool wait_once(std::chrono::milliseconds timeout) {
    try {
      if (!handle->wait(timeout)) return false;
    } catch (const std::exception& error) {
      end(essence(error.what()));
      return true;
    }
    try {
      if (deliver) deliver();
    } catch (const std::exception& error) {
      refusal = error.what();
    }
    end("");
    return true;
  }

  void end(std::string text) {
    const std::scoped_lock lock(mutex);
    if (std::exchange(done, true)) return;
    failure = std::move(text);
    changed.notify_all();
  }

  void wait_for_others(std::chrono::milliseconds most) {
    std::unique_lock lock(mutex);
    changed.wait_for(lock, most, [&] { return done || !claimed; });
  }

  const WorkHandle handle;
  const std::function<void()> deliver;
  std::mutex mutex;  // guards the members below
  std::condition_variable changed;
  bool claimed = false;
  bool done = false;
  std::string failure;
  std::string refusal;  // why the received message could not be delivered
};

PointToPointWork::PointToPointWork(std::shared_ptr<GlooContext> context, WorkHandle handle,
                                   Call call, std::function<void()> deliver)
    : OperationWork(std::move(context), handle, std::move(call)),
      job_(std::make_shared<Job>(std::move(handle), std::move(deliver))) {}

// A dropped message is still sent or received, by a Waiters thread, unless it has failed.
PointToPointWork::~PointToPointWork() {
  if (!is_settled()) {
    hand_over();
  } else if (job_->claim()) {
    context_->release(handle_);
  }
}

// The thread may use the raw pointer, because ~GlooContext waits for its Waiters.
void PointToPointWork::hand_over() {
  if (!job_->claim()) return;
  try {
    context_->waiters().run([job = job_, context = context_.get()] {
      while (!context->is_broken() && !job->wait_once(kAnyTime)) continue;
      job->end("interrupted");  // a no-op if the job has ended
      context->release(job->handle);
      context->progress().ring();
    });
  } catch (const std::system_error& error) {
    job_->end(str("no thread to wait for it: ", error.what()));
  }
}

bool PointToPointWork::library_ended(std::string& failure) {
  const std::scoped_lock lock(job_->mutex);
  failure = job_->failure;
  return job_->done;
}

bool PointToPointWork::is_through() const {
  const std::scoped_lock lock(job_->mutex);
  return job_->done;
}

void PointToPointWork::finish() {
  if (!job_->refusal.empty()) {
    const int own = context_->watchdog().world_rank(context_->rank());
    context_->end_group(str("rank ", own, ": ", call_.text(), " over gloo: ", job_->refusal));
  }
  source_ = call_.description.kind == CallKind::kRecv ? handle_->sourceRank() : -1;
}

// The watchdog regularly interrupts the library's wait (GlooContext::nudge). If that wait times
// out, Gloo closes all connections of the group, so its timeout must not expire before our
// deadline.
void PointToPointWork::wait(std::optional<std::chrono::milliseconds> timeout) {
  const auto limit = timeout.value_or(context_->options().timeout);
  const Deadline deadline(limit);
  wait_until(limit, [&](std::chrono::milliseconds most) {
    if (!job_->claim()) return job_->wait_for_others(most);
    const auto rest = left(deadline);
    const GlooContext::MayClose may_close(*context_, Clock::now() + rest);
    if (!job_->wait_once(rest + std::chrono::milliseconds(1))) return job_->unclaim();
    context_->progress().ring();
    const bool failed = [&] {
      const std::scoped_lock lock(job_->mutex);
      return !job_->failure.empty();
    }();
    if (failed && deadline.expired()) {
      settle_with_error_of([&] { context_->time_out(call_, limit); });
    }
  });
}

}  // namespace lockstep::gloo
