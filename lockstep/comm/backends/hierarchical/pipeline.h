// Collectives in stages, several in flight, in one order on all ranks.
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
#include <lockstep/comm/diagnostics/watchdog.h>
#include <lockstep/core/clock.h>

namespace lockstep::hierarchical {

using WorkPtr = std::shared_ptr<Work>;
using Start = std::function<WorkPtr()>;

/// The stages of this rank for one piece of a collective; stages without this rank are empty.
struct Piece {
  Start up;      ///< on the local group
  Start across;  ///< on the leaders' group, once up is complete
  Start down;    ///< on the local group; on leaders once across is complete
  WorkPtr up_work, across_work, down_work;
  bool across_started = false;
  bool down_started = false;
};

/// A collective. On all ranks, the local starts of an operation precede those of the next one, and
/// within an operation all ups precede all downs. The order on the local group is therefore
/// independent of timing.
struct Operation {
  CallDescription description;
  std::uint64_t number = 0;
  std::vector<Piece> pieces;
  std::function<void()> finish;  ///< when all stages are complete

  bool ups_started = false;
  bool all_local_started = false;
  bool ended = false;
  std::exception_ptr error;
  Watchdog::Ticket ticket = 0;
};

/// One rank's operations under way. Safe to use from several threads.
class Pipeline : public Progressing, public std::enable_shared_from_this<Pipeline> {
 public:
  explicit Pipeline(const Parts& parts);

  WorkPtr start(std::shared_ptr<Operation> operation);
  /// Waits until every operation has started all its stages on the local group, which others may
  /// then use.
  void start_all_local(std::chrono::milliseconds timeout);

  bool advance() noexcept override;
  bool needs_a_hand() override;

  void wait(Operation& operation, std::chrono::milliseconds timeout);
  /// Advances all operations. Returns whether `operation` has ended.
  bool test(Operation& operation);
  std::exception_ptr error_of(const Operation& operation);

  /// Ends all groups; the first reason wins.
  void abort(const std::string& reason);
  void check();

 private:
  bool move_all();
  bool move(Operation& operation, bool may_start_local, bool may_start_across);
  bool start_stages(Operation& operation, bool may_start_across);
  bool finish_if_complete(Operation& operation);
  void check_network();
  void end(Operation& operation);
  void fail(const std::exception_ptr& error);
  void time_out(const Operation& operation, std::chrono::milliseconds timeout);
  template <class Condition>
  void move_until(const Condition& condition, std::chrono::milliseconds timeout,
                  const std::function<void()>& expired);

  const std::shared_ptr<Backend> local_;
  const std::shared_ptr<Backend> leaders_;
  const std::shared_ptr<Backend> flat_;
  const std::shared_ptr<Progress> progress_;
  Watchdog* const watchdog_;  // flat_'s, for statuses; null where it has none
  const int rank_;
  const std::chrono::milliseconds timeout_;

  // Guards what follows, and the operations. Recursive: what a stage starts may move all groups.
  std::recursive_mutex mutex_;
  bool moving_ = false;
  std::deque<std::shared_ptr<Operation>> operations_;
  // A stage failed. Until the deadline, a rank may report the reason on the network that all share.
  std::exception_ptr doubt_;
  std::optional<Deadline> doubt_until_;
  std::exception_ptr failure_;  // the group has ended
};

}  // namespace lockstep::hierarchical
