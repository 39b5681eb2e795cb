// Performs one worker's row of a table and records when its actions began and ended. The caller
// defines what an action does: it may compute with stages on threads or ranks, or with a test's
// numbers.
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

/// Performs one action of this worker. Called only on the worker's thread.
using Perform = std::function<void(const Action&)>;

/// times[i] is when action i of a worker began, and times[i + 1] when it ended. A worker that
/// failed has fewer entries. For the host, an action on a GPU ends when its kernels are queued; see
/// StepTimes.
struct Recording {
  std::vector<Clock::time_point> times{};
};

struct FailedAction {
  Action action{};
  std::exception_ptr error{};
};

/// Performs `actions` in order. If one throws, stops and returns that action with its error. Each
/// action costs one clock read and one call. Does not throw.
std::optional<FailedAction> execute(const std::vector<Action>& actions, const Perform& perform,
                                    Recording& recording);

/// The first failure of a step, which is reported to the step's caller. The other workers fail only
/// because the first failure ended the step. Thread-safe, except for check().
class StepFailure {
 public:
  /// Keeps `failed`, unless an earlier failure has been kept or its error is a StepAborted, which
  /// is only a consequence of another worker's failure.
  void keep(int worker, FailedAction failed);

  /// Does nothing if no failure has been kept. Otherwise throws an error that names the table, the
  /// worker, the stage and the action. Its type is that of the original if that is a Lockstep type,
  /// else lockstep::Error. The original is nested in it (std::rethrow_if_nested).
  void check(const Table& table) const;

 private:
  struct Failure {
    int worker = 0;
    FailedAction failed;
  };
  std::mutex mutex_;
  std::optional<Failure> first_;
};

/// The actions of the workers, as in a Table, in seconds since the first action began.
Timeline timeline_of(const std::vector<std::vector<Action>>& actions,
                     const std::vector<Recording>& recordings);

}  // namespace lockstep::pipeline
