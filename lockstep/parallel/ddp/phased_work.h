// An operation of several steps, each of which needs the result of the one before.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <lockstep/comm/call/work.h>

namespace lockstep {

/// The ranks of a group must start its collectives in one order. So no phase starts by itself when
/// the one before has ended, which each rank sees at another time: phases start in advance() and
/// wait(), which all ranks call at the same place of their program. Not thread-safe.
class PhasedWork final : public Work {
 public:
  /// Runs when the phase before has ended well. Starts the next, or returns null for "nothing to
  /// wait for"; throws what the operation then ends with. What it starts may have phases itself.
  using Phase = std::function<std::shared_ptr<Work>()>;

  /// `first` (null: nothing to wait for) is under way.
  PhasedWork(std::shared_ptr<Work> first, std::vector<Phase> rest);

  /// Waits for the phase that is under way and starts the next one. False when that was the last.
  bool advance();

  /// Runs all phases that are left. `timeout` is of each phase.
  void wait(std::optional<std::chrono::milliseconds> timeout = std::nullopt) override;
  /// Helps the phase under way; true when the last one has ended, or one with an error.
  bool is_completed() override;
  std::exception_ptr error() const override;

 private:
  bool advance(std::optional<std::chrono::milliseconds> timeout);

  std::shared_ptr<Work> current_;
  std::vector<Phase> rest_;
  std::size_t next_ = 0;
  std::exception_ptr error_;
};

/// Calls advance() of all works that have phases, round after round, so that every work's next
/// phase is under way before any is waited for, and then waits for all, in their order, and calls
/// `waited` with the index of each. Throws the first error.
void wait_for_all(const std::vector<std::shared_ptr<Work>>& works,
                  const std::function<void(std::size_t)>& waited = {});

}  // namespace lockstep
