// How an asynchronous operation ended.
#pragma once

#include <exception>
#include <utility>

namespace lockstep {

/// Only the first end counts. Not thread-safe: a Work that several threads use guards its outcome.
class Outcome {
 public:
  /// Ends the operation, successfully if `error` is null. Returns false if it had already ended.
  bool end(std::exception_ptr error = nullptr) {
    if (std::exchange(has_ended_, true)) return false;
    error_ = std::move(error);
    return true;
  }
  bool has_ended() const { return has_ended_; }
  /// Null while the operation runs, and after success.
  const std::exception_ptr& error() const { return error_; }
  /// Throws the error, if there is one.
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  bool has_ended_ = false;
  std::exception_ptr error_;
};

}  // namespace lockstep
