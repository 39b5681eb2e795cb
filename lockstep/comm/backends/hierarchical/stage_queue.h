// Runs collectives in stages. Several can be in flight, and all ranks start them in the same order.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/comm/backends/hierarchical/hierarchical.h>
#include <lockstep/comm/call/outcome.h>
#include <lockstep/comm/diagnostics/watchdog.h>
#include <lockstep/core/clock.h>

namespace lockstep::hierarchical {

using WorkPtr = std::shared_ptr<Work>;
using Start = std::function<WorkPtr()>;

/// This rank's stages for one piece of a collective. A stage in which it takes no part is empty.
struct Piece {
  Start up;      ///< on the local group
  Start across;  ///< on the leaders' group, once `up` is complete
  Start down;    ///< on the local group; on a leader once `across` is complete
  WorkPtr up_work, across_work, down_work;
  bool across_started = false;
  bool down_started = false;
};

/// A collective in stages. On all ranks, it starts its local stages before the next collective
/// starts any, and all its `up` stages before its `down` stages. The order on the local group
/// therefore does not depend on timing.
struct StagedCollective {
  CallDescription description;
  std::uint64_t number = 0;
  std::vector<Piece> pieces;
  std::function<void()> finish;  ///< called when all stages are complete

  bool ups_started = false;
  bool all_local_started = false;
  comm::Outcome outcome;
  comm::Watchdog::Ticket ticket = 0;
};

/// One rank's collectives under way. Thread-safe.
class StageQueue : public comm::Progressing, public std::enable_shared_from_this<StageQueue> {
 public:
  explicit StageQueue(const Parts& parts);

  WorkPtr start(std::shared_ptr<StagedCollective> collective);
  /// Waits until every collective has started all its stages on the local group. The caller may
  /// then use that group for another call.
  void start_all_local(std::chrono::milliseconds timeout);

  bool advance() noexcept override;
  bool needs_a_hand() override;

  void wait(StagedCollective& collective, std::chrono::milliseconds timeout);
  /// Advances all collectives. Returns whether `collective` has ended.
  bool test(StagedCollective& collective);
  std::exception_ptr error_of(const StagedCollective& collective);

  /// Aborts all groups. The first reason wins.
  void abort(const std::string& reason);
  void check();

 private:
  bool move_all();
  bool move(StagedCollective& collective, bool may_start_local, bool may_start_across);
  bool start_stages(StagedCollective& collective, bool may_start_across);
  bool finish_if_complete(StagedCollective& collective);
  void check_network();
  void end(StagedCollective& collective, std::exception_ptr error = nullptr);
  void fail(const std::exception_ptr& error);
  void time_out(const StagedCollective& collective, std::chrono::milliseconds timeout);
  template <class Condition>
  void move_until(const Condition& condition, std::chrono::milliseconds timeout,
                  const std::function<void()>& expired);

  const std::shared_ptr<comm::Backend> local_;
  const std::shared_ptr<comm::Backend> leaders_;
  const std::shared_ptr<comm::Backend> flat_;
  const std::shared_ptr<comm::Progress> progress_;
  comm::Watchdog* const watchdog_;  // the watchdog of flat_, for statuses; null if it has none
  const int rank_;
  const std::chrono::milliseconds timeout_;

  // Guards the members below and the collectives. Recursive, because a call that a stage starts may
  // advance all groups, including this one.
  std::recursive_mutex mutex_;
  bool moving_ = false;
  std::deque<std::shared_ptr<StagedCollective>> collectives_;
  // Set when a stage failed. Until the deadline, another rank may still report the actual reason
  // over the flat group.
  std::exception_ptr doubt_;
  std::optional<Deadline> doubt_until_;
  std::exception_ptr failure_;  // set once the group has ended
};

}  // namespace lockstep::hierarchical
