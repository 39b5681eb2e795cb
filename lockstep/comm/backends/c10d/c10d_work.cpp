#include <lockstep/comm/backends/c10d/c10d_work.h>

#include <algorithm>
#include <utility>

#include <lockstep/core/error.h>

namespace lockstep::c10d_adapter {
namespace {

constexpr std::chrono::milliseconds kLibraryNoTimeout = c10d::Store::kNoTimeout;

// A wait in the library sees neither an abort nor a peer that left: so often it comes back to look.
constexpr std::chrono::milliseconds kLook{250};

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& caught) {
    return essence(caught.what());
  }
}

std::chrono::milliseconds left(const Deadline& deadline) {
  return std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining());
}

}  // namespace

// --- What both kinds share -----------------------------------------------------------------------

OperationWork::OperationWork(std::shared_ptr<Context> context, WorkHandle handle, Call call)
    : context_(std::move(context)),
      handle_(std::move(handle)),
      call_(std::move(call)),
      ticket_(context_->watchdog().started(call_.description, call_.number)) {}

bool OperationWork::is_completed() { return step(); }

void OperationWork::settle() {
  settled_ = true;
  context_->watchdog().completed(ticket_);
  context_->release(handle_);
}

void OperationWork::settle_with_error_of(const std::function<void()>& function) {
  try {
    function();
  } catch (...) {
    error_ = std::current_exception();
    settle();
  }
}

void OperationWork::rethrow() const {
  if (error_) std::rethrow_exception(error_);
}

bool OperationWork::step() {
  if (settled_) return true;
  if (!inquiry_) {
    std::string failure;
    if (!library_ended(failure)) {
      settle_with_error_of([&] { context_->check_departed(call_); });
      return settled_;
    }
    if (failure.empty()) {
      settle_with_error_of([&] { finish(); });
      if (!settled_) settle();
      return true;
    }
    failure_ = std::move(failure);
    inquiry_.emplace(kInquiry);
  }
  settle_with_error_of([&] { context_->explain(call_, failure_, *inquiry_); });
  return settled_;
}

// --- Collectives ---------------------------------------------------------------------------------

CollectiveWork::CollectiveWork(std::shared_ptr<Context> context, WorkHandle handle, Call call,
                               std::function<void()> finish)
    : OperationWork(std::move(context), std::move(handle), std::move(call)),
      finish_(std::move(finish)) {}

bool CollectiveWork::library_ended(std::string& failure) {
  if (!handle_->isCompleted()) return false;
  if (const auto error = handle_->exception()) failure = text_of(error);
  return true;
}

void CollectiveWork::finish() {
  handle_->synchronize();
  if (finish_) finish_();
  finish_ = nullptr;  // and what it holds
}

void CollectiveWork::wait(std::optional<std::chrono::milliseconds> timeout) {
  if (!context_->is_gloo()) return wait_on_stream(timeout);
  const auto limit = timeout.value_or(context_->options().timeout);
  const Deadline deadline(limit);
  while (!step()) {
    if (is_inquiring()) {
      context_->watchdog().wait_for_news(kInquiryPause);
    } else if (left(deadline).count() == 0) {
      settle_with_error_of([&] { context_->time_out(call_, limit); });
    } else {
      try {
        handle_->wait(std::min(left(deadline), kLook));
      } catch (const std::exception&) {
        // It failed, or this turn's time is over: step() looks.
      }
    }
  }
  rethrow();
}

// Makes the current stream wait, not this thread, if no timeout is given; the library's own
// watchdog keeps the group's.
void CollectiveWork::wait_on_stream(std::optional<std::chrono::milliseconds> timeout) {
  if (!is_settled()) {
    settle_with_error_of([&] {
      context_->watchdog().throw_if_ended();
      std::string failure;
      try {
        handle_->wait(timeout.value_or(kLibraryNoTimeout));
      } catch (const std::exception& error) {
        failure = essence(error.what());
      }
      if (!failure.empty()) fail_on_stream(failure, timeout.value_or(context_->options().timeout));
      if (finish_) finish_();
      finish_ = nullptr;
    });
    if (!is_settled()) settle();
  }
  rethrow();
}

void CollectiveWork::fail_on_stream(const std::string& failure, std::chrono::milliseconds timeout) {
  if (failure.find("imed out") != std::string::npos ||
      failure.find("imeout") != std::string::npos) {
    context_->time_out(call_, timeout);
  }
  for (const Deadline deadline(kInquiry);;) {
    context_->explain(call_, failure, deadline);
    context_->watchdog().wait_for_news(kInquiryPause);
  }
}

// --- Gloo's point-to-point -----------------------------------------------------------------------

// Outlives the Work where that is dropped: the message travels on.
struct PointToPointWork::Job {
  explicit Job(WorkHandle handle) : handle(std::move(handle)) {}

  void run(std::chrono::milliseconds timeout) {
    std::string text;
    try {
      if (!handle->wait(timeout)) text = "interrupted";
    } catch (const std::exception& error) {
      text = essence(error.what());
    }
    const std::scoped_lock lock(mutex);
    done = true;
    failure = std::move(text);
    changed.notify_all();
  }

  const WorkHandle handle;
  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  bool done = false;
  std::string failure;
};

PointToPointWork::PointToPointWork(std::shared_ptr<Context> context, WorkHandle handle, Call call)
    : OperationWork(std::move(context), handle, std::move(call)),
      job_(std::make_shared<Job>(std::move(handle))) {}

PointToPointWork::~PointToPointWork() {
  const std::scoped_lock lock(job_->mutex);
  if (!job_->done) hand_over();
}

void PointToPointWork::hand_over() {
  if (std::exchange(handed_over_, true)) return;
  context_->waiters().run(
      [job = job_, timeout = context_->options().timeout] { job->run(timeout); });
}

bool PointToPointWork::library_ended(std::string& failure) {
  const std::scoped_lock lock(job_->mutex);
  if (!job_->done) hand_over();
  failure = job_->failure;
  return job_->done;
}

void PointToPointWork::finish() {
  source_ = call_.description.kind == CallKind::kRecv ? handle_->sourceRank() : -1;
}

void PointToPointWork::wait(std::optional<std::chrono::milliseconds> timeout) {
  const auto limit = timeout.value_or(context_->options().timeout);
  const Deadline deadline(limit);
  if (!handed_over_ && !is_settled()) {
    job_->run(std::max(left(deadline), std::chrono::milliseconds(1)));
    if (!job_->failure.empty() && deadline.expired()) {
      settle_with_error_of([&] { context_->time_out(call_, limit); });
    }
  }
  while (!step()) {
    if (is_inquiring()) {
      context_->watchdog().wait_for_news(kInquiryPause);
      continue;
    }
    std::unique_lock lock(job_->mutex);
    if (!job_->changed.wait_for(lock, std::min(left(deadline), kLook),
                                [&] { return job_->done; }) &&
        left(deadline).count() == 0) {
      lock.unlock();
      settle_with_error_of([&] { context_->time_out(call_, limit); });
    }
  }
  rethrow();
}

}  // namespace lockstep::c10d_adapter
