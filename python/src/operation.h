// One operation, as PyTorch's Work.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <lockstep/comm/call/work.h>

namespace lockstep_c10d {

class ProgressThreads;

struct OperationOptions {
  c10d::OpType type = c10d::OpType::UNKNOWN;
  /// For PyTorch's profiler: "lockstep:all_reduce".
  const char* title = nullptr;
  std::uint64_t sequence = 0;
  /// After which the operation has failed; absent: the group's.
  std::optional<std::chrono::milliseconds> timeout;
  /// How long get_future() looks whether the operation is done before a progress thread gets it.
  std::chrono::microseconds spin{0};
};

/// Lockstep's operations move when somebody calls in. wait() does so in the calling thread, which
/// is the quickest. A future completes by itself, as its users expect: it gets a progress thread
/// to wait, but only where a short look did not find the operation done already, as it does where
/// DDP's ranks keep pace. Safe to use from several threads; one at a time drives the operation.
class Operation final : public c10d::Work {
 public:
  Operation(std::shared_ptr<lockstep::Work> work, std::vector<at::Tensor> inputs,
            std::vector<at::Tensor> outputs, int rank, std::shared_ptr<ProgressThreads> progress,
            const OperationOptions& options);

  bool wait(std::chrono::milliseconds timeout) override;
  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override { return work_->source_rank(); }
  std::vector<at::Tensor> result() override { return outputs_; }
  void synchronize() override { wait(kNoTimeout); }
  std::uint64_t getSequencenumber() const override { return options_.sequence; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;

  /// Messages may be completed in any order, collectives in that in which they were called.
  bool is_message() const { return c10d::isP2POp(opType_); }

  /// Unlike isCompleted() it only looks: nothing moves by it.
  bool has_ended() const { return ended_; }
  /// Waits for the end, whatever it is.
  void drive() noexcept;

 private:
  bool claim() { return !claimed_.exchange(true); }
  void unclaim() { claimed_.store(false); }
  void end(const std::exception_ptr& error);
  void look_until(std::chrono::steady_clock::time_point give_up, std::chrono::milliseconds timeout);
  void pause();
  void complete_by_itself();

  const std::shared_ptr<lockstep::Work> work_;
  const std::vector<at::Tensor> outputs_;
  const std::shared_ptr<ProgressThreads> progress_;
  const OperationOptions options_;
  std::atomic<bool> claimed_{false};  ///< somebody drives it
  std::atomic<bool> ended_{false};
  std::mutex futures_mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> outputs_future_, result_future_;
};

}  // namespace lockstep_c10d
