// One operation as a PyTorch Work.
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

/// The time between two looks at an operation that has not completed.
inline constexpr std::chrono::microseconds kBetweenLooks{200};

struct OperationOptions {
  c10d::OpType type = c10d::OpType::UNKNOWN;
  /// The name in PyTorch's profiler, as in "lockstep:all_reduce".
  const char* title = nullptr;
  std::uint64_t sequence = 0;
  /// The time after which the operation fails; absent: the group's timeout.
  std::optional<std::chrono::milliseconds> timeout;
  /// How long getFuture() polls for completion before it passes the operation to a progress thread.
  std::chrono::microseconds spin{0};
};

/// Lockstep's operations advance only when a thread calls into them. wait() advances the operation
/// in the calling thread, which is fastest. A future must complete without a further call, so a
/// progress thread waits for its operation, unless a short poll finds it complete, as is usual if
/// DDP's ranks keep pace. Safe to use from several threads; one thread at a time drives the
/// operation.
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

  /// Whether this is a point-to-point message. Messages may complete in any order; collectives
  /// complete in the order of their calls.
  bool is_message() const { return c10d::isP2POp(opType_); }

  /// Unlike isCompleted(), does not advance the operation.
  bool has_ended() const { return ended_; }
  /// Waits until the operation has succeeded or failed.
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
  std::atomic<bool> claimed_{false};  ///< whether a thread drives the operation
  std::atomic<bool> ended_{false};
  std::mutex futures_mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> outputs_future_, result_future_;
};

}  // namespace lockstep_c10d
