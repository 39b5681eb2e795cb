// Performs one worker's line of a table and records when its actions began and ended. The caller
// says what an action does: it computes with stages on threads or ranks, or with a test's numbers.
#pragma once

#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include <lockstep/core/clock.h>
#include <lockstep/parallel/pipeline/schedule/replay.h>
#include <lockstep/parallel/pipeline/schedule/table.h>

namespace lockstep::pipeline {

/// Does one action of this worker. Called on the worker's thread only.
using Perform = std::function<void(const Action&)>;

/// times[i] is when action i of a worker began, and times[i + 1] when it ended. A worker that
/// failed has fewer. On a GPU an action ends when its kernels are queued.
struct Recording {
  std::vector<Clock::time_point> times{};
};

struct FailedAction {
  Action action{};
  std::exception_ptr error{};
};

/// Performs `actions` one after the other, and stops at the first that throws, which it returns.
/// Each action costs one read of the clock and one call. Throws nothing itself.
std::optional<FailedAction> execute(const std::vector<Action>& actions, const Perform& perform,
                                    Recording& recording);

/// The first failure of a step, whose error the caller of the step gets. The other workers fail
/// only because the first one has ended the step. Thread-safe, apart from check().
class StepFailure {
 public:
  /// Keeps `failed`, unless an earlier failure is kept or it is a StepAborted, which only follows
  /// from another worker's failure.
  void keep(int worker, FailedAction failed);

  /// Returns if all went well. Otherwise throws an error that names the table, the worker, the
  /// stage and the action, of the same type if it is one of Lockstep's, else lockstep::Error. The
  /// original is nested in it (std::rethrow_if_nested).
  void check(const Table& table) const;

 private:
  struct Failure {
    int worker = 0;
    FailedAction failed;
  };
  std::mutex mutex_;
  std::optional<Failure> first_;
};

/// What the workers of `table` did, in seconds since the first of them began.
Timeline timeline_of(const Table& table, const std::vector<Recording>& recordings);

}  // namespace lockstep::pipeline
