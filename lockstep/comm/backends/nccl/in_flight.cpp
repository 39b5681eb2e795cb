#include <lockstep/comm/backends/nccl/in_flight.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include <lockstep/comm/backends/c10d/library_error.h>
#include <lockstep/core/error.h>

namespace lockstep::nccl {
namespace {

using c10d_adapter::essence;
using c10d_adapter::kInquiry;
using c10d_adapter::kInquiryPause;

// The pause between two queries of the thread. Its findings appear only in status reports and in
// the flight recorder.
constexpr std::chrono::milliseconds kLeastPause{1};
constexpr std::chrono::milliseconds kMostPause{50};
// When a query has blocked for this long, the watchdog judges the operation without its answer.
// AdapterOptions::host_timeout takes its place unless it is 0.
constexpr std::chrono::seconds kHeldUp{10};

}  // namespace

std::chrono::nanoseconds pause_after(std::chrono::nanoseconds waited,
                                     std::chrono::nanoseconds least,
                                     std::chrono::nanoseconds most) {
  return std::clamp(waited / 8, least, most);
}

InFlight::OperationPointer InFlight::add(WorkHandle handle, Call call) {
  free_ended();
  const auto ticket = context_.watchdog().started(call.description, call.number);
  auto operation = std::make_shared<StreamOperation>(std::move(handle), std::move(call), ticket);
  {
    const Lock lock(mutex_);
    if (failure_) {
      operation->end(failure_);
      return operation;
    }
    if (operations_.empty()) first_since_ = operation->start();
    const bool was_empty = operations_.empty();
    if (!thread_.joinable() && !stop_) thread_ = std::thread([this] { run(); });
    operations_.push_back(operation);
    if (was_empty) changed_.notify_all();
  }
  return operation;
}

void InFlight::free_ended() {
  std::vector<OperationPointer> ended;  // destroyed after the lock is released
  const Lock lock(mutex_);
  ended.swap(ended_);
}

bool InFlight::ask(StreamOperation& operation) {
  if (operation.has_ended()) return true;
  try {
    if (!context_.device().has_ended(operation.library_work())) return false;
    if (!operation.library_work().exception() && !is_behind_failed(operation)) complete(operation);
  } catch (const std::exception&) {
    // The querying thread gets this error as well and reports it.
  }
  if (!operation.has_ended()) changed_.notify_all();
  return operation.has_ended();
}

// Whether an earlier operation has failed, since operations behind a failed one can look complete.
// An earlier operation that still runs means nothing: messages may overtake each other.
bool InFlight::is_behind_failed(const StreamOperation& operation) {
  std::vector<OperationPointer> earlier;
  {
    const Lock lock(mutex_);
    if (failure_) return true;
    for (const OperationPointer& each : operations_) {
      if (each.get() == &operation) break;
      if (!each->has_ended()) earlier.push_back(each);
    }
  }
  return std::any_of(earlier.begin(), earlier.end(), [&](const OperationPointer& each) {
    return context_.device().has_ended(each->library_work()) && each->library_work().exception();
  });
}

void InFlight::run() {
  Lock lock(mutex_);
  while (!stop_) {
    if (operations_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const OperationPointer first = operations_.front();
    const auto since = first_since_;
    lock.unlock();
    look_at(*first);
    lock.lock();
    forget_ended();
    if (stop_ || operations_.empty() || operations_.front() != first) continue;
    changed_.wait_for(lock, pause_after(Clock::now() - since, kLeastPause, kMostPause));
  }
}

void InFlight::look_at(StreamOperation& operation) {
  if (operation.has_ended()) return;
  try {
    std::string failure;
    try {
      if (!answer_for(operation)) return judge_first();
      const auto error = operation.library_work().exception();
      if (!error) return complete(operation);
      failure = essence(error);
    } catch (const CommError&) {
      throw;
    } catch (const std::exception& error) {
      failure = essence(error.what());  // the query failed, and so has the device
    }
    explain(operation, failure);
  } catch (const CommError&) {
    context_.carry_out_end();
  }
}

void InFlight::explain(StreamOperation& operation, const std::string& text) {
  for (const Deadline deadline(kInquiry); !is_stopped();) {
    context_.explain(operation.call(), text, deadline);
    context_.watchdog().wait_for_news(kInquiryPause);
  }
}

void InFlight::complete(StreamOperation& operation) {
  operation.end(nullptr);
  if (!operation.error()) context_.watchdog().completed(operation.ticket());
}

// The querying thread itself judges after each answer, since an operation that has ended is not
// late. The watchdog judges only while a query is blocked.
void InFlight::judge() {
  const auto limit = context_.options().host_timeout;
  {
    const Lock lock(mutex_);
    if (!asking_since_ || Clock::now() - *asking_since_ <
                              (limit.count() > 0 ? limit : std::chrono::milliseconds(kHeldUp))) {
      return;
    }
  }
  judge_first();
}

// Judges the first operation, together with those that the library runs as one with it.
void InFlight::judge_first() {
  std::vector<OperationPointer> together;
  Clock::time_point since;
  {
    const Lock lock(mutex_);
    if (operations_.empty() || failure_) return;
    const c10d::Work* const work = &operations_.front()->library_work();
    std::copy_if(operations_.begin(), operations_.end(), std::back_inserter(together),
                 [&](const OperationPointer& each) { return &each->library_work() == work; });
    since = first_since_;
  }
  for (const OperationPointer& each : together) {
    if (!each->has_ended()) context_.check_in_flight(each->call(), since);
  }
}

bool InFlight::answer_for(StreamOperation& operation) {
  const auto note = [&](std::optional<Clock::time_point> since) {
    const Lock lock(mutex_);
    asking_since_ = since;
  };
  note(Clock::now());
  try {
    const bool ended = context_.device().has_ended(operation.library_work());
    note(std::nullopt);
    return ended;
  } catch (...) {
    note(std::nullopt);
    throw;
  }
}

void InFlight::forget_ended() {
  while (!operations_.empty() && operations_.front()->has_ended()) {
    ended_.push_back(std::move(operations_.front()));
    operations_.pop_front();
    first_since_ = Clock::now();
  }
}

void InFlight::fail(std::exception_ptr error) {
  std::deque<OperationPointer> failed;
  {
    const Lock lock(mutex_);
    if (failure_) return;
    failure_ = error;
    failed.swap(operations_);
    ended_.insert(ended_.end(), failed.begin(), failed.end());
    changed_.notify_all();
  }
  for (const OperationPointer& operation : failed) operation->end(error);
}

std::vector<InFlight::OperationPointer> InFlight::stop() {
  {
    const Lock lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  const Lock lock(mutex_);  // the watchdog's thread may still call judge()
  std::vector<OperationPointer> rest(operations_.begin(), operations_.end());
  operations_.clear();
  return rest;
}

bool InFlight::is_stopped() {
  const Lock lock(mutex_);
  return stop_;
}

}  // namespace lockstep::nccl
