// An operation with a final step on this rank, which runs when the operation has succeeded.
#pragma once

#include <exception>
#include <functional>
#include <utility>

#include <ATen/core/grad_mode.h>

#include <lockstep/comm/call/work.h>
#include <lockstep/comm/group/process_group.h>

namespace lockstep_c10d {

/// Must be used by one thread at a time, which Operation ensures. An exception of `finish` becomes
/// the operation's error.
class FinishedWork final : public lockstep::Work {
 public:
  FinishedWork(lockstep::WorkPtr work, std::function<void()> finish)
      : work_(std::move(work)), finish_(std::move(finish)) {}

  void wait(std::optional<std::chrono::milliseconds> timeout) override {
    work_->wait(timeout);
    finish();
    if (error_) std::rethrow_exception(error_);
  }
  bool is_completed() override {
    if (!work_->is_completed()) return false;
    if (!work_->error()) finish();
    return true;
  }
  std::exception_ptr error() const override { return error_ ? error_ : work_->error(); }

 private:
  void finish() {
    const auto finish = std::exchange(finish_, nullptr);
    if (!finish) return;
    try {
      const at::NoGradGuard no_grad;
      finish();
    } catch (...) {
      error_ = std::current_exception();
    }
  }

  const lockstep::WorkPtr work_;
  std::function<void()> finish_;
  std::exception_ptr error_;
};

}  // namespace lockstep_c10d
