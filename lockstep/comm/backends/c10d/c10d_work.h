// Operations of Gloo as Works.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <lockstep/comm/backends/c10d/context.h>
#include <lockstep/comm/call/work.h>

namespace lockstep::c10d_adapter {

/// What both kinds share: the end of an operation, well or with the reason of its failure. Safe to
/// use from several threads: while one waits another may move what this is a part of.
class OperationWork : public Work {
 public:
  OperationWork(std::shared_ptr<Context> context, WorkHandle handle, Call call);
  ~OperationWork() override;

  bool is_completed() final;
  std::exception_ptr error() const final;

 protected:
  /// Whether the library has ended the operation, without blocking, and with what text it failed.
  virtual bool library_ended(std::string& failure) = 0;
  /// Called before somebody looks whether it has ended instead of waiting.
  virtual void expect_looks() = 0;
  /// Whether nothing of the operation is left in the library once it is settled.
  virtual bool is_through() const = 0;
  /// The work that remains after the operation has succeeded.
  virtual void finish() {}

  /// Waits until the operation has ended or the deadline is over, which ends the group. `wait_once`
  /// waits in the library for some time of its own, at most its argument.
  void wait_until(std::chrono::milliseconds limit,
                  const std::function<void(std::chrono::milliseconds)>& wait_once);
  /// Settles what can be settled without blocking. True once the operation has ended.
  bool step();
  /// Settles with the error that `function` throws, where it throws and nothing is settled.
  void settle_with_error_of(const std::function<void()>& function);
  void settle();
  bool is_settled() const;
  void rethrow() const;

  const std::shared_ptr<Context> context_;
  const WorkHandle handle_;
  const Call call_;

 private:
  bool is_inquiring() const;

  const std::optional<Watchdog::Ticket> ticket_;
  mutable std::recursive_mutex mutex_;  // guards the members below
  std::optional<Deadline> inquiry_;     // the operation failed, and the reason is looked for
  std::string failure_;
  bool settled_ = false;
  std::exception_ptr error_;
};

/// Collectives, of which the library tells whether they are complete.
class CollectiveWork final : public OperationWork {
 public:
  /// `finish` turns what the library computed into what was asked for.
  CollectiveWork(std::shared_ptr<Context> context, WorkHandle handle, Call call,
                 std::function<void()> finish);
  void wait(std::optional<std::chrono::milliseconds> timeout) override;

 private:
  bool library_ended(std::string& failure) override;
  bool is_through() const override;
  void expect_looks() override;
  void finish() override;

  std::function<void()> finish_;
  std::once_flag listens_;
};

/// Sends and receives, which can only be waited for: a thread of the group's Waiters does so
/// for who asks whether one is complete, and for who has others to move meanwhile.
class PointToPointWork final : public OperationWork {
 public:
  /// `deliver` puts a message that has come where it was asked for, on any thread.
  PointToPointWork(std::shared_ptr<Context> context, WorkHandle handle, Call call,
                   std::function<void()> deliver);
  ~PointToPointWork() override;
  void wait(std::optional<std::chrono::milliseconds> timeout) override;
  int source_rank() const override { return source_; }

 private:
  struct Job;
  void hand_over();
  bool library_ended(std::string& failure) override;
  void expect_looks() override { hand_over(); }
  bool is_through() const override;
  void finish() override;

  const std::shared_ptr<Job> job_;
  int source_ = -1;
};

}  // namespace lockstep::c10d_adapter
