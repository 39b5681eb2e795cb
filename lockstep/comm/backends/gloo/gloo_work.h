// Operations of Gloo as Works.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <lockstep/comm/backends/gloo/gloo_context.h>
#include <lockstep/comm/call/outcome.h>
#include <lockstep/comm/call/work.h>

namespace lockstep::gloo {

/// The base class of both kinds of operations. Determines whether an operation has ended, and why
/// it failed. Safe to use from several threads: while one waits, another may advance the operation.
class OperationWork : public Work {
 public:
  OperationWork(std::shared_ptr<GlooContext> context, WorkHandle handle, Call call);
  ~OperationWork() override;

  bool is_completed() final;
  std::exception_ptr error() const final;

 protected:
  /// Returns whether the library has ended the operation, and sets `failure` to its error, if any.
  /// Does not block.
  virtual bool library_ended(std::string& failure) = 0;
  /// Called before the operation is polled rather than waited for.
  virtual void expect_looks() = 0;
  /// Whether the library has finished with the operation. Called once it is settled.
  virtual bool is_through() const = 0;
  /// The work that remains after the operation has succeeded.
  virtual void finish() {}

  /// Waits until the operation has ended. Ends the group at the deadline. `wait_once` waits in the
  /// library for at most its argument.
  void wait_until(std::chrono::milliseconds limit,
                  const std::function<void(std::chrono::milliseconds)>& wait_once);
  /// Settles the operation if that is possible without blocking. True once it has ended.
  bool step();
  /// Calls `function` unless the operation is settled, and settles it with the error thrown, if
  /// any.
  void settle_with_error_of(const std::function<void()>& function);
  void settle(std::exception_ptr error = nullptr);
  bool is_settled() const;
  void rethrow() const;

  const std::shared_ptr<GlooContext> context_;
  const WorkHandle handle_;
  const Call call_;

 private:
  bool is_inquiring() const;

  const std::optional<comm::Watchdog::Ticket> ticket_;
  mutable std::recursive_mutex mutex_;  // guards the members below
  std::optional<Deadline> inquiry_;     // set after a failure, while its reason is sought
  std::string failure_;
  comm::Outcome outcome_;
};

/// A collective. The library reports whether it is complete.
class CollectiveWork final : public OperationWork {
 public:
  /// `finish` turns the library's result into the result of the call.
  CollectiveWork(std::shared_ptr<GlooContext> context, WorkHandle handle, Call call,
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

/// A send or a receive. The library cannot report whether it is complete, only wait for it. If the
/// caller polls, or must advance other operations meanwhile, a thread of the group's Waiters waits.
class PointToPointWork final : public OperationWork {
 public:
  /// `deliver` copies a received message to the caller's tensor, on any thread.
  PointToPointWork(std::shared_ptr<GlooContext> context, WorkHandle handle, Call call,
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

}  // namespace lockstep::gloo
