// How an asynchronous operation ended, and why a group did.
#pragma once

#include <atomic>
#include <exception>
#include <string>
#include <utility>

namespace lockstep::comm {

/// Only the first end counts. One thread at a time may call end(). Meanwhile, other threads may
/// call the const functions, which take no lock. A thread that sees the end also sees everything
/// that was written before it.
class Outcome {
 public:
  /// Ends the operation, successfully if `error` is null. Returns false if it had already ended.
  bool end(std::exception_ptr error = nullptr) {
    if (has_ended_.load(std::memory_order_relaxed)) return false;
    error_ = std::move(error);
    has_ended_.store(true, std::memory_order_release);
    return true;
  }
  bool has_ended() const { return has_ended_.load(std::memory_order_acquire); }
  /// Null while the operation runs, and after success.
  std::exception_ptr error() const { return has_ended() ? error_ : nullptr; }
  /// Throws the error, if there is one.
  void rethrow() const {
    if (const auto ended_with = error()) std::rethrow_exception(ended_with);
  }

 private:
  std::atomic<bool> has_ended_ = false;
  std::exception_ptr error_;  // not written after the end
};

/// The reason with which a group is aborted: `given`, unless that is empty, as the text of an
/// exception may be.
inline std::string abort_reason(const std::string& given) {
  return given.empty() ? "the group was aborted, and no reason was given" : given;
}

}  // namespace lockstep::comm
