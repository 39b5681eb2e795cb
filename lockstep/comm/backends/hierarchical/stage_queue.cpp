#include <lockstep/comm/backends/hierarchical/stage_queue.h>

#include <algorithm>
#include <thread>
#include <utility>

#include <lockstep/core/error.h>

namespace lockstep::hierarchical {
namespace {

// A wait polls, because no single event could wake it for all groups. It yields for kImpatience
// after the last progress, then sleeps for kPause between polls.
constexpr std::chrono::microseconds kImpatience{100};
constexpr std::chrono::microseconds kPause{100};
constexpr std::chrono::milliseconds kDoubt{400};

bool is_complete(const WorkPtr& work) {
  if (!work) return true;
  if (!work->is_completed()) return false;
  if (const auto error = work->error()) std::rethrow_exception(error);
  return true;
}

bool all_across_started(const StagedCollective& collective) {
  return std::all_of(collective.pieces.begin(), collective.pieces.end(),
                     [](const Piece& piece) { return piece.across_started; });
}

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& caught) {
    return caught.what();
  }
}

class HierarchicalWork final : public Work {
 public:
  HierarchicalWork(std::shared_ptr<StageQueue> queue, std::shared_ptr<StagedCollective> collective,
                   std::chrono::milliseconds timeout)
      : queue_(std::move(queue)), collective_(std::move(collective)), timeout_(timeout) {}

  void wait(std::optional<std::chrono::milliseconds> timeout) override {
    queue_->wait(*collective_, timeout.value_or(timeout_));
  }
  bool is_completed() override { return queue_->test(*collective_); }
  std::exception_ptr error() const override { return queue_->error_of(*collective_); }

 private:
  const std::shared_ptr<StageQueue> queue_;
  const std::shared_ptr<StagedCollective> collective_;
  const std::chrono::milliseconds timeout_;
};

}  // namespace

StageQueue::StageQueue(const Parts& parts)
    : local_(parts.local),
      leaders_(parts.leaders),
      flat_(parts.flat),
      progress_(parts.progress),
      watchdog_(parts.flat->watchdog()),
      rank_(parts.rank),
      timeout_(parts.timeout) {}

WorkPtr StageQueue::start(std::shared_ptr<StagedCollective> collective) {
  const std::scoped_lock lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  if (watchdog_) {
    collective->ticket = watchdog_->started(collective->description, collective->number);
  }
  collectives_.push_back(collective);
  move_all();
  return std::make_shared<HierarchicalWork>(shared_from_this(), std::move(collective), timeout_);
}

// --- Moving --------------------------------------------------------------------------------------

bool StageQueue::advance() noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return lock && move_all();
}

bool StageQueue::needs_a_hand() {
  const std::scoped_lock lock(mutex_);
  move_all();
  return !collectives_.empty();
}

bool StageQueue::move_all() {
  // Starting a stage may advance all groups, including this one, which calls this function again.
  if (failure_ || std::exchange(moving_, true)) return false;
  bool moved = false;
  try {
    check_network();
    bool may_start_local = true;
    bool may_start_across = true;
    if (!doubt_) {
      for (const auto& collective : collectives_) {
        moved = move(*collective, may_start_local, may_start_across) || moved;
        may_start_local = may_start_local && collective->all_local_started;
        may_start_across = may_start_across && all_across_started(*collective);
      }
      std::erase_if(collectives_,
                    [](const auto& collective) { return collective->outcome.has_ended(); });
    }
    if (doubt_ && doubt_until_->expired()) std::rethrow_exception(doubt_);
  } catch (...) {
    fail(std::current_exception());
    moved = true;
  }
  moving_ = false;
  return moved;
}

// Throws if the flat group has failed or a rank has left. After a failed stage, this often gives
// the actual reason.
void StageQueue::check_network() {
  flat_->check();
  if (!watchdog_ || collectives_.empty()) return;
  const StagedCollective& first = *collectives_.front();
  const std::string gone = watchdog_->departed(first.number);
  if (!gone.empty()) {
    throw CommError(str(gone, " while rank ", watchdog_->world_rank(rank_), " was in ",
                        comm::describe_numbered(first.description, first.number)));
  }
}

bool StageQueue::move(StagedCollective& collective, bool may_start_local, bool may_start_across) {
  try {
    if (!collective.ups_started) {
      if (!may_start_local) return false;
      collective.ups_started = true;
      for (Piece& piece : collective.pieces) {
        if (piece.up) piece.up_work = piece.up();
      }
    }
    return start_stages(collective, may_start_across) || finish_if_complete(collective);
  } catch (const std::exception&) {
    doubt_ = std::current_exception();
    doubt_until_.emplace(kDoubt);
    return false;
  }
}

// Starts the across and down stages whose predecessors are complete. On each group, stages start in
// the order of the collectives and their pieces.
bool StageQueue::start_stages(StagedCollective& collective, bool may_start_across) {
  bool moved = false;
  bool across_in_order = may_start_across;
  bool down_in_order = true;
  for (Piece& piece : collective.pieces) {
    if (!piece.across_started && across_in_order && is_complete(piece.up_work)) {
      piece.across_started = moved = true;
      if (piece.across) piece.across_work = piece.across();
    }
    if (!piece.down_started && down_in_order && piece.across_started &&
        is_complete(piece.across_work)) {
      piece.down_started = moved = true;
      if (piece.down) piece.down_work = piece.down();
    }
    across_in_order = across_in_order && piece.across_started;
    down_in_order = piece.down_started;
  }
  collective.all_local_started =
      std::all_of(collective.pieces.begin(), collective.pieces.end(),
                  [](const Piece& piece) { return piece.down_started || !piece.down; });
  return moved;
}

bool StageQueue::finish_if_complete(StagedCollective& collective) {
  for (const Piece& piece : collective.pieces) {
    if (!piece.down_started || !is_complete(piece.down_work)) return false;
  }
  if (collective.finish) collective.finish();
  end(collective);
  return true;
}

// --- Waiting -------------------------------------------------------------------------------------

template <class Condition>
void StageQueue::move_until(const Condition& condition, std::chrono::milliseconds timeout,
                            const std::function<void()>& expired) {
  const Deadline deadline(timeout);
  auto last_moved = Clock::now();
  for (;;) {
    bool moved = false;
    {
      const std::scoped_lock lock(mutex_);
      moved = move_all();
      if (condition()) return;
    }
    if (deadline.expired()) expired();
    if (progress_) moved = progress_->advance(this) || moved;
    if (moved) {
      last_moved = Clock::now();
    } else if (Clock::now() - last_moved < kImpatience) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kPause);
    }
  }
}

void StageQueue::wait(StagedCollective& collective, std::chrono::milliseconds timeout) {
  move_until([&] { return collective.outcome.has_ended(); }, timeout,
             [&] { time_out(collective, timeout); });
  if (const auto error = error_of(collective)) std::rethrow_exception(error);
}

void StageQueue::start_all_local(std::chrono::milliseconds timeout) {
  const auto all_started = [&] {
    return std::all_of(collectives_.begin(), collectives_.end(),
                       [](const auto& collective) { return collective->all_local_started; });
  };
  move_until([&] { return failure_ || all_started(); }, timeout,
             [&] {
               const std::scoped_lock lock(mutex_);
               if (!collectives_.empty()) time_out(*collectives_.front(), timeout);
             });
  check();
}

bool StageQueue::test(StagedCollective& collective) {
  const std::scoped_lock lock(mutex_);
  move_all();
  return collective.outcome.has_ended();
}

std::exception_ptr StageQueue::error_of(const StagedCollective& collective) {
  const std::scoped_lock lock(mutex_);
  return collective.outcome.error();
}

// --- Ending --------------------------------------------------------------------------------------

void StageQueue::end(StagedCollective& collective, std::exception_ptr error) {
  if (!collective.outcome.end(std::move(error))) return;
  collective.pieces.clear();  // also releases the memory that they hold
  collective.finish = nullptr;
  if (watchdog_) watchdog_->completed(collective.ticket);
}

// Aborts all groups, so that no rank waits on any of them for a rank that has failed.
void StageQueue::fail(const std::exception_ptr& error) {
  const std::string reason = text_of(error);
  failure_ = error;
  flat_->abort(reason);
  local_->abort(reason);
  if (leaders_) leaders_->abort(reason);
  for (const auto& collective : collectives_) {
    end(*collective, error);
  }
  collectives_.clear();
}

void StageQueue::time_out(const StagedCollective& collective, std::chrono::milliseconds timeout) {
  const std::scoped_lock lock(mutex_);
  if (failure_) return;
  const auto number = collective.number;
  std::string reason =
      str("rank ", watchdog_ ? watchdog_->world_rank(rank_) : rank_, " waited ",
          static_cast<double>(timeout.count()) / 1e3, " s in ",
          comm::describe_numbered(collective.description, number), " over hierarchical");
  if (watchdog_) {
    const std::string missing = watchdog_->missing(number);
    reason += str(missing.empty() ? ", which all ranks have called" : " for " + missing, "; ",
                  watchdog_->whereabouts());
    watchdog_->abort(reason, /*late=*/true);
  }
  try {
    flat_->check();
    throw TimeoutError(reason);
  } catch (const CommError&) {
    fail(std::current_exception());
  }
}

void StageQueue::abort(const std::string& reason) {
  const std::scoped_lock lock(mutex_);
  if (failure_) return;
  flat_->abort(reason);
  try {
    flat_->check();
    throw CommError(reason);
  } catch (const CommError&) {
    fail(std::current_exception());
  }
}

void StageQueue::check() {
  const std::scoped_lock lock(mutex_);
  move_all();
  if (failure_) std::rethrow_exception(failure_);
}

}  // namespace lockstep::hierarchical
