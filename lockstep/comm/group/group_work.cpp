#include <lockstep/comm/group/group_work.h>

#include <lockstep/comm/call/device_stream.h>
#include <lockstep/comm/call/stream_ordered.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>

namespace lockstep::comm {
namespace {

// Makes a Work that continues after its wait report its end to the log. Returns false if the Work
// does not continue.
bool tell_later(Work& work, const std::shared_ptr<CallLog>& log, FlightRecorder::Id id) {
  auto* const stream_ordered = dynamic_cast<StreamOrdered*>(&work);
  if (stream_ordered == nullptr) return false;
  stream_ordered->on_end([log, id](const std::exception_ptr& error) {
    error ? log->failed_unseen(id, error) : log->completed(id, -1);
  });
  return true;
}

}  // namespace

GroupWork::GroupWork(std::shared_ptr<Work> work, TensorPairs copies, std::shared_ptr<CallLog> log,
                     FlightRecorder::Id id, bool runs_on_stream)
    : work_(std::move(work)),
      copies_(std::move(copies)),
      log_(std::move(log)),
      id_(id),
      device_(device_of_results(copies_)),
      called_(device_ ? std::optional(mark_stream(*device_)) : std::nullopt),
      log_hears_later_(runs_on_stream && tell_later(*work_, log_, id_)) {}

// A graph cannot replay the copy of results from the host.
void GroupWork::check_stream() const {
  if (!device_ || !is_captured(*device_)) return;
  throw ConfigError(lockstep::str("wait: an operation on ", *device_,
                                  " began before this thread's stream was captured in a graph, "
                                  "which cannot wait for it; wait for it before the capture"));
}

void GroupWork::wait(std::optional<std::chrono::milliseconds> timeout) {
  check_stream();
  // A stream operation is not over after its first wait, and every caller's stream must wait for
  // it.
  const auto wait_again = [&] {
    if (log_hears_later_) work_->wait(timeout);
  };
  if (has_ended()) return wait_again();
  std::unique_lock turn(work_mutex_, std::defer_lock);
  std::optional<std::chrono::milliseconds> left = timeout;
  if (!timeout) {
    turn.lock();
  } else if (!turn.try_lock()) {
    const Deadline deadline(*timeout);
    if (!turn.try_lock_for(deadline.remaining())) {
      throw TimeoutError(lockstep::str("waited ", static_cast<double>(timeout->count()) / 1e3,
                                       " s while another thread waits for the same operation"));
    }
    left = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining());
  }
  if (has_ended()) return wait_again();  // another thread may have waited in the meantime
  try {
    work_->wait(left);
  } catch (const ConfigError&) {
    if (!work_->error()) throw;  // the wait was invalid; the operation continues
    fail(std::current_exception());
  } catch (...) {
    fail(std::current_exception());
  }
  if (const auto failure = finish()) std::rethrow_exception(failure);
}

// Throws the error of an operation that has failed.
bool GroupWork::has_ended() {
  if (!outcome_.has_ended()) return false;
  const std::scoped_lock lock(mutex_);
  outcome_.rethrow();
  follow_copies();
  return true;
}

// Requires the lock. A graph cannot wait for copies made outside it, and streams outside a graph
// cannot wait for copies made in it.
void GroupWork::follow_copies() const {
  if (arrived_ && is_captured(arrived_->device()) == copied_in_graph_) let_stream_wait(*arrived_);
}

bool GroupWork::is_completed() {
  if (is_known()) return true;
  if (device_ && is_captured(*device_)) return false;
  const std::unique_lock turn(work_mutex_, std::try_to_lock);
  if (!turn) return false;  // another thread is waiting for it
  if (is_known()) return true;
  if (!work_->is_completed()) return false;
  if (auto failure = work_->error()) fail(std::move(failure));
  finish();
  return true;
}

std::exception_ptr GroupWork::error() const {
  {
    const std::scoped_lock lock(mutex_);
    const bool continues = log_hears_later_ && outcome_.has_ended() && !outcome_.error();
    if (!continues) return outcome_.error();
  }
  return work_->error();
}

// Whether the outcome is known. It is not known after the first wait for a stream operation.
bool GroupWork::is_known() const {
  if (!outcome_.has_ended()) return false;
  const std::scoped_lock lock(mutex_);
  if (outcome_.error()) return true;
  follow_copies();
  return !log_hears_later_;
}

// If two threads wait, the second returns only after the first has made the copies.
std::exception_ptr GroupWork::finish() {
  const std::scoped_lock lock(mutex_);
  if (outcome_.has_ended()) return outcome_.error();
  if (!copies_.empty()) {
    try {
      if (called_) let_stream_wait(*called_);
      arrived_ = copy_results(copies_);
      copied_in_graph_ = arrived_ && is_captured(arrived_->device());
    } catch (...) {
      outcome_.end(log_->failed(id_, std::current_exception()));
      return outcome_.error();
    }
    copies_.clear();
  }
  if (!log_hears_later_) log_->completed(id_, work_->source_rank());
  outcome_.end();
  return nullptr;
}

void GroupWork::fail(std::exception_ptr error) {
  const std::scoped_lock lock(mutex_);
  if (!outcome_.has_ended()) outcome_.end(log_->failed(id_, std::move(error)));
}

void WorkList::wait(std::optional<std::chrono::milliseconds> timeout) {
  if (!timeout) {
    for (const auto& work : works_) work->wait();
    return;
  }
  const Deadline deadline(*timeout);
  for (const auto& work : works_) {
    work->wait(std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining()));
  }
}

bool WorkList::is_completed() {
  bool all = true;
  for (const auto& work : works_) all = work->is_completed() && all;
  return all;
}

std::exception_ptr WorkList::error() const {
  for (const auto& work : works_) {
    if (auto failure = work->error()) return failure;
  }
  return nullptr;
}

}  // namespace lockstep::comm
