#include <lockstep/comm/group/staged_starts.h>

#include <thread>
#include <utility>
#include <vector>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>

namespace lockstep::comm {
namespace {

// A copy takes at least tens of microseconds. If the device computes for longer, the thread sleeps
// and leaves the processor to others.
constexpr std::chrono::microseconds kBusyWait{100};
constexpr std::chrono::microseconds kStagingPause{50};

std::string entry_failure(const StagedStarts::Call& call, const std::exception& error) {
  return lockstep::str(call.name, " cannot be copied to the host: ", first_line(error));
}

}  // namespace

// The handle of a queued call. Once the call has started, it forwards to the transport's Work.
class StagedStarts::Handle final : public Work {
 public:
  Handle(std::shared_ptr<StagedStarts> queue, const Call& call)
      : queue_(std::move(queue)),
        timeout_(call.timeout),
        name_(call.name),
        check_(call.check),
        abort_(call.abort),
        owner_(call.owner) {}

  void started(std::shared_ptr<Work> work, std::exception_ptr error) {
    const std::scoped_lock lock(mutex_);
    if (has_started_) return;
    has_started_ = true;
    work_ = std::move(work);
    error_ = std::move(error);
  }

  void wait(std::optional<std::chrono::milliseconds> timeout) override {
    const Deadline deadline(timeout.value_or(timeout_));
    wait_for_start(deadline, timeout.value_or(timeout_));
    const auto [work, error] = state();
    if (error) std::rethrow_exception(error);
    using std::chrono::milliseconds;
    work->wait(timeout ? std::optional(std::chrono::ceil<milliseconds>(deadline.remaining()))
                       : std::nullopt);
    release();
  }

  bool is_completed() override {
    queue_->advance();
    if (!has_started()) return false;
    const auto [work, error] = state();
    if (work && !work->is_completed()) return false;
    release();
    return true;
  }

  std::exception_ptr error() const override {
    const auto [work, error] = state();
    return work ? work->error() : error;
  }

  int source_rank() const override {
    const auto work = state().first;
    return work ? work->source_rank() : -1;
  }

 private:
  bool has_started() const {
    const std::scoped_lock lock(mutex_);
    return has_started_;
  }

  std::pair<std::shared_ptr<Work>, std::exception_ptr> state() const {
    const std::scoped_lock lock(mutex_);
    return {work_, error_};
  }

  void wait_for_start(const Deadline& deadline, std::chrono::milliseconds timeout) {
    auto last_moved = Clock::now();
    while (!has_started()) {
      bool moved = queue_->advance();
      if (has_started()) return;
      if (queue_->is_held_by_capture()) {
        throw ConfigError(lockstep::str("wait: ", name_,
                                        " is on its way to the host since before a graph was "
                                        "captured, which cannot wait for it; wait for it before "
                                        "the capture"));
      }
      if (queue_->progress_) moved = queue_->progress_->advance(queue_.get()) || moved;
      if (moved) {
        last_moved = Clock::now();
      } else if (deadline.expired()) {
        const std::string reason = lockstep::str(name_, " has not reached the host after ",
                                                 static_cast<double>(timeout.count()) / 1e3,
                                                 " s: earlier work of the device has not ended");
        abort_(reason);
        started(nullptr, std::make_exception_ptr(TimeoutError(reason)));
      } else if (Clock::now() - last_moved < kBusyWait) {
        std::this_thread::yield();
      } else {
        end_with_group();
        std::this_thread::sleep_for(kStagingPause);
      }
    }
  }

  void end_with_group() {
    try {
      if (check_) check_();
    } catch (...) {
      started(nullptr, std::current_exception());
    }
  }

  void release() {
    const std::scoped_lock lock(mutex_);
    owner_.reset();
  }

  const std::shared_ptr<StagedStarts> queue_;
  const std::chrono::milliseconds timeout_;
  const std::string name_;
  const std::function<void()> check_;
  const std::function<void(const std::string&)> abort_;
  mutable std::mutex mutex_;  // guards the members below
  std::shared_ptr<const void> owner_;
  bool has_started_ = false;
  std::shared_ptr<Work> work_;
  std::exception_ptr error_;
};

std::shared_ptr<Work> StagedStarts::push(Call call) {
  std::call_once(joins_progress_, [&] {
    if (progress_) progress_->add(weak_from_this());
  });
  auto handle = std::make_shared<Handle>(shared_from_this(), call);
  auto entry = std::make_shared<Entry>();
  try {
    if (!call.loads.empty()) entry->arrived = start_copies_to_host(call.loads);
  } catch (const std::exception& error) {
    const std::string reason = entry_failure(call, error);
    call.abort(reason);
    throw CommError(reason);
  }
  call.owner.reset();  // the handle holds it
  entry->call = std::move(call);
  entry->handle = handle;
  {
    const std::scoped_lock lock(mutex_);
    entries_.push_back(std::move(entry));
    waiting_.fetch_add(1, std::memory_order_release);
  }
  advance();
  return handle;
}

void StagedStarts::finish(std::chrono::milliseconds limit,
                          const std::function<void()>& check) noexcept {
  const Deadline deadline(limit);
  const auto start = Clock::now();
  try {
    while (!empty() && !deadline.expired()) {
      if (advance()) continue;
      check();
      if (Clock::now() - start < kBusyWait) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(kStagingPause);
      }
    }
  } catch (const std::exception&) {
    // The group has ended: nobody waits for the remaining calls.
  }
  std::deque<std::shared_ptr<Entry>> rest;
  {
    const std::scoped_lock lock(mutex_);
    rest.swap(entries_);
    waiting_.fetch_sub(rest.size(), std::memory_order_release);
  }
  while (!empty()) std::this_thread::sleep_for(kStagingPause);  // another thread is starting a call
}

bool StagedStarts::advance() noexcept {
  // A handle may hold the last reference to its group, whose destructor then drains this queue.
  std::vector<std::shared_ptr<Handle>> handles;
  if (empty() || is_starting_.exchange(true, std::memory_order_acquire)) return false;
  bool moved = false;
  while (const auto entry = take_first_ready()) {
    moved = true;
    std::shared_ptr<Work> work;
    std::exception_ptr error;
    try {
      work = entry->call.start();
    } catch (...) {
      error = std::current_exception();
    }
    // The caller may have dropped the handle. The operation still runs because the peers need it.
    if (auto handle = entry->handle.lock()) {
      handle->started(std::move(work), error);
      handles.push_back(std::move(handle));
    }
    waiting_.fetch_sub(1, std::memory_order_release);
  }
  is_starting_.store(false, std::memory_order_release);
  return moved;
}

// The arrival of the first call's data changes no word. Only polling its event shows it.
std::chrono::nanoseconds StagedStarts::longest_sleep() {
  return empty() ? Progressing::longest_sleep() : kStagingPause;
}

bool StagedStarts::is_held_by_capture() {
  const std::scoped_lock lock(mutex_);
  return !entries_.empty() && entries_.front()->arrived &&
         is_captured(entries_.front()->arrived->device());
}

std::shared_ptr<StagedStarts::Entry> StagedStarts::take_first_ready() {
  const std::scoped_lock lock(mutex_);
  if (entries_.empty()) return nullptr;
  const auto& arrived = entries_.front()->arrived;
  std::string failure;
  try {
    if (arrived && (is_captured(arrived->device()) || !arrived->query())) return nullptr;
  } catch (const std::exception& error) {
    failure = entry_failure(entries_.front()->call, error);
  }
  auto entry = std::move(entries_.front());
  if (!failure.empty()) {
    entry->call.start = [failure, abort = entry->call.abort]() -> std::shared_ptr<Work> {
      abort(failure);
      throw CommError(failure);
    };
  }
  entries_.pop_front();
  return entry;
}

}  // namespace lockstep::comm
