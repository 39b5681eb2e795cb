// Operations of PyTorch's libraries as Works.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <lockstep/comm/backends/c10d/context.h>
#include <lockstep/comm/work.h>

namespace lockstep::c10d_adapter {

/// What both kinds share: the end of an operation, well or with the reason of its failure.
class OperationWork : public Work {
 public:
  OperationWork(std::shared_ptr<Context> context, WorkHandle handle, Call call);

  bool is_completed() final;
  std::exception_ptr error() const final { return error_; }

 protected:
  /// Whether the library has ended the operation, without blocking, and with what text it failed.
  virtual bool library_ended(std::string& failure) = 0;
  /// What is left to do when it ended well.
  virtual void finish() {}

  /// Settles what can be settled without blocking. True once the operation has ended.
  bool step();
  /// Settles with the error that `function` throws.
  void settle_with_error_of(const std::function<void()>& function);
  bool is_inquiring() const { return inquiry_.has_value(); }
  void rethrow() const;
  void settle();
  bool is_settled() const { return settled_; }

  const std::shared_ptr<Context> context_;
  const WorkHandle handle_;
  const Call call_;

 private:
  const Watchdog::Ticket ticket_;
  std::optional<Deadline> inquiry_;  // the operation failed, and the reason is looked for
  std::string failure_;
  bool settled_ = false;
  std::exception_ptr error_;
};

/// Operations of which the library tells whether they are complete: collectives, and NCCL's
/// point-to-point.
class CollectiveWork final : public OperationWork {
 public:
  /// `finish` turns what the library computed into what was asked for.
  CollectiveWork(std::shared_ptr<Context> context, WorkHandle handle, Call call,
                 std::function<void()> finish);
  void wait(std::optional<std::chrono::milliseconds> timeout) override;

 private:
  bool library_ended(std::string& failure) override;
  void finish() override;
  void wait_on_stream(std::optional<std::chrono::milliseconds> timeout);
  [[noreturn]] void fail_on_stream(const std::string& failure, std::chrono::milliseconds timeout);

  std::function<void()> finish_;
};

/// Gloo's sends and receives, which can only be waited for: a thread of the group's Waiters does so
/// for who asks whether one is complete.
class PointToPointWork final : public OperationWork {
 public:
  PointToPointWork(std::shared_ptr<Context> context, WorkHandle handle, Call call);
  ~PointToPointWork() override;
  void wait(std::optional<std::chrono::milliseconds> timeout) override;
  int source_rank() const override { return source_; }

 private:
  struct Job;
  void hand_over();
  bool library_ended(std::string& failure) override;
  void finish() override;

  const std::shared_ptr<Job> job_;
  bool handed_over_ = false;
  int source_ = -1;
};

}  // namespace lockstep::c10d_adapter
