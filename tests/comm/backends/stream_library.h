// Simulates a library whose operations continue in a stream after wait(). A test decides when they
// end.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <lockstep/comm/backends/nccl/device_queries.h>

namespace lockstep::testing_support {

/// Like NCCL's Work: a wait without a timeout only makes the stream wait, and returns.
class StreamLibraryWork final : public c10d::Work {
 public:
  bool isCompleted() override {
    ++questions;
    const std::scoped_lock lock(state_mutex_);
    if (query_error_) std::rethrow_exception(query_error_);
    return ended_;
  }
  std::exception_ptr exception() const override {
    const std::scoped_lock lock(state_mutex_);
    return error_;
  }
  bool wait(std::chrono::milliseconds timeout) override {
    if (timeout != c10d::Store::kNoTimeout) ++blocking_waits;
    ++stream_waits;
    return true;
  }
  void synchronize() override { ++stream_waits; }

  void end(std::exception_ptr error = nullptr) {
    const std::scoped_lock lock(state_mutex_);
    if (ended_) return;
    ended_ = true;
    error_ = std::move(error);
  }
  void fail(const std::string& text) { end(std::make_exception_ptr(std::runtime_error(text))); }
  /// Makes queries fail, as if the device itself had failed.
  void fail_queries(const std::string& text) {
    const std::scoped_lock lock(state_mutex_);
    query_error_ = std::make_exception_ptr(std::runtime_error(text));
  }

  std::atomic<int> questions = 0;
  std::atomic<int> stream_waits = 0;
  std::atomic<int> blocking_waits = 0;

 private:
  mutable std::mutex state_mutex_;  // guards the members below
  bool ended_ = false;
  std::exception_ptr error_;
  std::exception_ptr query_error_;
};

class StreamLibrary final : public c10d::Backend {
 public:
  using WorkPointer = c10::intrusive_ptr<StreamLibraryWork>;

  StreamLibrary(int rank, int size) : c10d::Backend(rank, size) {}

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>&,
                                           const c10d::AllreduceOptions&) override {
    return begin();
  }
  /// The result is the root's own input.
  c10::intrusive_ptr<c10d::Work> reduce(std::vector<at::Tensor>&,
                                        const c10d::ReduceOptions&) override {
    return begin();
  }
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions&) override { return begin(); }
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>&, int, int) override {
    return begin();
  }
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>&, int, int) override {
    return begin();
  }
  /// Operations that are started before endCoalescing() have no Work of their own.
  void startCoalescing() override { collects = true; }
  c10::intrusive_ptr<c10d::Work> endCoalescing() override {
    collects = false;
    return begin();
  }
  /// Stops all operations, which then look complete, as with NCCL.
  void abort() override {
    aborted = true;
    for (const WorkPointer& work : works()) work->end();
  }
  void shutdown() override {
    if (!shutdown_failure.empty()) throw std::runtime_error(shutdown_failure);
  }

  /// All operations, in the order of their starts.
  std::vector<WorkPointer> works() const {
    const std::scoped_lock lock(mutex_);
    return works_;
  }
  WorkPointer work(std::size_t index) const { return works().at(index); }
  /// Makes the next start fail with `text`.
  void refuse(const std::string& text) {
    const std::scoped_lock lock(mutex_);
    refusal_ = text;
  }

  std::atomic<bool> aborted = false;
  std::string shutdown_failure;  ///< error of shutdown(); set it before the group leaves
  std::atomic<bool> collects = false;

 private:
  c10::intrusive_ptr<c10d::Work> begin() {
    if (collects) return nullptr;
    const std::scoped_lock lock(mutex_);
    if (!refusal_.empty()) throw std::runtime_error(std::exchange(refusal_, ""));
    works_.push_back(c10::make_intrusive<StreamLibraryWork>());
    return works_.back();
  }

  mutable std::mutex mutex_;  // guards the members below
  std::vector<WorkPointer> works_;
  std::string refusal_;
};

/// A device whose current stream counts as captured while `capturing` is set.
class CapturedDevice final : public nccl::DeviceQueries {
 public:
  bool is_capturing() override { return capturing; }
  bool has_ended(c10d::Work& work) override {
    if (capturing) ++illegal_questions;
    return work.isCompleted();
  }

  std::atomic<bool> capturing = false;
  std::atomic<int> illegal_questions = 0;  ///< queries during a capture
};

}  // namespace lockstep::testing_support
