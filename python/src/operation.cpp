#include "operation.h"

#include <utility>

#include "errors.h"
#include "gil.h"
#include "progress_threads.h"

namespace lockstep_c10d {

using c10::ivalue::Future;

Operation::Operation(std::shared_ptr<lockstep::Work> work, std::vector<at::Tensor> inputs,
                     std::vector<at::Tensor> outputs, int rank,
                     std::shared_ptr<ProgressThreads> progress, const OperationOptions& options)
    : c10d::Work(rank, options.type, options.title, inputs),
      work_(std::move(work)),
      outputs_(std::move(outputs)),
      progress_(std::move(progress)),
      options_(options) {}

bool Operation::wait(std::chrono::milliseconds timeout) {
  if (!ended_) {
    const WithoutGil without_gil;
    if (timeout != kNoTimeout) {
      look_until(std::chrono::steady_clock::now() + timeout, timeout);
    } else {
      drive();
    }
  }
  if (const auto error = exception()) std::rethrow_exception(error);
  return true;
}

// Polls until `give_up`. Work::wait() is not used, because it ends the operation at its deadline,
// and the caller's deadline applies to this wait only.
void Operation::look_until(std::chrono::steady_clock::time_point give_up,
                           std::chrono::milliseconds timeout) {
  while (!isCompleted()) {
    if (std::chrono::steady_clock::now() >= give_up) {
      C10_THROW_ERROR(DistBackendError,
                      lockstep::str("lockstep: Timed out waiting ", timeout.count(), " ms: rank ",
                                    rank_, ": ", options_.title, " is not done yet; it goes on"));
    }
    pause();
  }
}

void Operation::pause() {
  std::unique_lock lock(mutex_);
  cv_.wait_for(lock, kBetweenLooks, [this] { return completed_; });
}

bool Operation::isCompleted() {
  if (ended_) return true;
  const WithoutGil without_gil;
  if (!ended_ && claim()) {
    if (!ended_ && work_->is_completed()) {
      end(work_->error());
    } else if (!ended_) {
      unclaim();
    }
  }
  return ended_;
}

bool Operation::isSuccess() const { return ended_ && !exception(); }

std::exception_ptr Operation::exception() const {
  const std::scoped_lock lock(mutex_);
  return exception_;
}

void Operation::drive() noexcept {
  // Another thread may have claimed the operation, to wait for it or to poll it.
  while (!ended_ && !claim()) pause();
  if (ended_) return;
  std::exception_ptr error;
  try {
    work_->wait(options_.timeout);
  } catch (...) {
    error = std::current_exception();
  }
  end(error);
}

// Called once, by the thread that has claimed the operation. The operation stays claimed.
void Operation::end(const std::exception_ptr& error) {
  const auto translated = for_python(error);
  finish(translated);
  c10::intrusive_ptr<Future> outputs, result;
  {
    const std::scoped_lock lock(futures_mutex_);
    ended_ = true;  // futures that are created from now on are complete immediately
    outputs = outputs_future_;
    result = result_future_;
  }
  if (outputs || result) progress_->step_aside();
  if (outputs) translated ? outputs->setError(translated) : outputs->markCompleted(outputs_);
  if (result) {
    result->markCompleted(
        static_cast<int>(translated ? c10d::WorkResult::COMM_ERROR : c10d::WorkResult::SUCCESS));
  }
}

c10::intrusive_ptr<Future> Operation::getFuture() {
  bool ended = false;
  c10::intrusive_ptr<Future> future;
  {
    const std::scoped_lock lock(futures_mutex_);
    if (!outputs_future_) {
      outputs_future_ = c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()));
      ended = ended_;
      if (ended) {
        const auto error = exception();
        error ? outputs_future_->setError(error) : outputs_future_->markCompleted(outputs_);
      }
    }
    future = outputs_future_;
  }
  if (!future->completed()) complete_by_itself();
  return future;
}

c10::intrusive_ptr<Future> Operation::getFutureResult() {
  c10::intrusive_ptr<Future> future;
  {
    const std::scoped_lock lock(futures_mutex_);
    if (!result_future_) {
      result_future_ = c10::make_intrusive<Future>(c10::IntType::get());
      if (ended_) {
        result_future_->markCompleted(static_cast<int>(exception() ? c10d::WorkResult::COMM_ERROR
                                                                   : c10d::WorkResult::SUCCESS));
      }
    }
    future = result_future_;
  }
  if (!future->completed()) complete_by_itself();
  return future;
}

void Operation::complete_by_itself() {
  const WithoutGil without_gil;
  const auto give_up = std::chrono::steady_clock::now() + options_.spin;
  do {
    if (isCompleted()) return;
  } while (std::chrono::steady_clock::now() < give_up);
  progress_->add(c10::intrusive_ptr<Operation>::unsafe_reclaim_from_nonowning(this));
}

}  // namespace lockstep_c10d
