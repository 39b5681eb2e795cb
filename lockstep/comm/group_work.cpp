#include <lockstep/comm/group_work.h>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>

namespace lockstep {

void GroupWork::wait(std::optional<std::chrono::milliseconds> timeout) {
  {
    const std::scoped_lock lock(mutex_);
    if (state_ == State::kDone) return;
    if (state_ == State::kFailed) std::rethrow_exception(error_);
  }
  std::unique_lock turn(work_mutex_, std::defer_lock);
  if (!timeout) turn.lock();
  if (timeout && !turn.try_lock_for(Deadline(*timeout).remaining())) {
    throw TimeoutError(lockstep::str("waited ", static_cast<double>(timeout->count()) / 1e3,
                                     " s while another thread waits for the same operation"));
  }
  {
    const std::scoped_lock lock(mutex_);  // another thread may have waited meanwhile
    if (state_ == State::kDone) return;
    if (state_ == State::kFailed) std::rethrow_exception(error_);
  }
  try {
    work_->wait(timeout);
  } catch (...) {
    fail(std::current_exception());
  }
  if (const auto failure = finish()) std::rethrow_exception(failure);
}

bool GroupWork::is_completed() {
  {
    const std::scoped_lock lock(mutex_);
    if (state_ != State::kRunning) return true;
  }
  const std::unique_lock turn(work_mutex_, std::try_to_lock);
  if (!turn) return false;  // somebody waits for it just now
  {
    const std::scoped_lock lock(mutex_);
    if (state_ != State::kRunning) return true;
  }
  if (!work_->is_completed()) return false;
  if (auto failure = work_->error()) fail(std::move(failure));
  finish();
  return true;
}

std::exception_ptr GroupWork::error() const {
  const std::scoped_lock lock(mutex_);
  return error_;
}

// A second thread that waits returns after the copies of the first.
std::exception_ptr GroupWork::finish() {
  const std::scoped_lock lock(mutex_);
  if (state_ != State::kRunning) return error_;
  if (!copies_.empty()) {
    try {
      const torch::NoGradGuard no_grad;
      for (auto& [target, source] : copies_) target.copy_(source);
    } catch (...) {
      error_ = log_->failed(id_, std::current_exception());
      state_ = State::kFailed;
      return error_;
    }
    copies_.clear();
  }
  log_->completed(id_, work_->source_rank());
  state_ = State::kDone;
  return nullptr;
}

void GroupWork::fail(std::exception_ptr error) {
  const std::scoped_lock lock(mutex_);
  if (state_ != State::kRunning) return;
  error_ = log_->failed(id_, std::move(error));
  state_ = State::kFailed;
}

void WorkList::wait(std::optional<std::chrono::milliseconds> timeout) {
  if (!timeout) {
    for (const auto& work : works_) work->wait();
    return;
  }
  const Deadline deadline(*timeout);
  for (const auto& work : works_) {
    work->wait(std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining()));
  }
}

bool WorkList::is_completed() {
  bool all = true;
  for (const auto& work : works_) all = work->is_completed() && all;
  return all;
}

std::exception_ptr WorkList::error() const {
  for (const auto& work : works_) {
    if (auto failure = work->error()) return failure;
  }
  return nullptr;
}

}  // namespace lockstep
