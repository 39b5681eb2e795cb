// An operation of several phases, each of which needs the result of the previous one.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <lockstep/comm/call/work.h>
#include <lockstep/core/export.h>

namespace lockstep {

/// The ranks of a group must start its collectives in the same order. A phase therefore never
/// starts on its own when the previous one ends, because each rank sees that end at a different
/// time. Phases start in advance() and wait(), which all ranks call at the same point of their
/// program. Not thread-safe.
class LOCKSTEP_API PhasedWork final : public Work {
 public:
  /// Called after the previous phase has succeeded. Starts the next operation, or returns null if
  /// there is nothing to wait for; an exception ends the whole operation. The returned Work may
  /// itself have phases.
  using Phase = std::function<std::shared_ptr<Work>()>;

  /// `first` is already in progress (null: nothing to wait for).
  PhasedWork(std::shared_ptr<Work> first, std::vector<Phase> rest);

  /// Waits for the current phase and starts the next one. Returns false if it was the last.
  bool advance();

  /// Runs all remaining phases. `timeout` applies to all of them together.
  void wait(std::optional<std::chrono::milliseconds> timeout = std::nullopt) override;
  /// Makes progress on the current phase. Returns true if the last phase has ended, or if any phase
  /// has failed.
  bool is_completed() override;
  std::exception_ptr error() const override;

 private:
  bool advance(std::optional<std::chrono::milliseconds> timeout);

  std::shared_ptr<Work> current_;
  std::vector<Phase> rest_;
  std::size_t next_ = 0;
  std::exception_ptr error_;
};

}  // namespace lockstep

namespace lockstep::detail {

/// Calls advance() on all works with phases, round after round, so that every work's next phase is
/// in progress before any is waited for. Then waits for all works in order and calls `waited` with
/// the index of each. Throws the first error.
LOCKSTEP_API void wait_for_all(const std::vector<std::shared_ptr<Work>>& works,
                               const std::function<void(std::size_t)>& waited = {});

}  // namespace lockstep::detail
