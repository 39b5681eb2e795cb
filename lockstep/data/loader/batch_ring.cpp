#include <lockstep/data/loader/batch_ring.h>

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include <lockstep/core/cpu.h>
#include <lockstep/core/error.h>
#include <lockstep/core/log.h>
#include <lockstep/core/options.h>
#include <lockstep/core/trace/span_recorder.h>

namespace lockstep::data {
namespace {

// If consumer and fillers share a processor, a slot that becomes free would preempt the consumer at
// once, in next(). Under SCHED_BATCH a filler waits until the consumer pauses or its time slice
// ends.
void wake_without_preempting() {
  const sched_param parameters{};
  pthread_setschedparam(pthread_self(), SCHED_BATCH, &parameters);  // only a hint: it may fail
}

}  // namespace

BatchRing::BatchRing(Fill fill, const BatchRingOptions& options) : fill_(std::move(fill)) {
  const OptionCheck check("BatchRing");
  check.in_range("threads", options.threads, 0, 1024);
  check.in_range("slots", options.slots, options.threads > 0 ? 2 : 1, 65536);
  slots_.resize(options.slots);
  fillers_.reserve(options.threads);
  try {
    for (int i = 0; i < options.threads; ++i) {
      fillers_.emplace_back([this, i, cpus = options.cpus] {
        name_thread_track(str("loader ", i));
        run_filler(cpus);
      });
    }
  } catch (const std::system_error& error) {
    quit();  // the destructor does not run, but started threads must be joined
    throw Error(str("BatchRing: the system refuses thread ", fillers_.size() + 1, " of ",
                    options.threads, " that fill batches (", error.code().message(),
                    "); ask for fewer"));
  }
}

BatchRing::~BatchRing() { quit(); }

void BatchRing::quit() {
  {
    const std::lock_guard lock(mutex_);
    quit_ = true;
  }
  slot_free_.notify_all();
}

void BatchRing::start(std::int64_t first, std::int64_t end) {
  {
    std::unique_lock lock(mutex_);
    end_ = claimed_;  // no thread claims another batch of the old sequence
    slot_filled_.wait(lock, [this] { return filling_ == 0; });
    for (Slot& slot : slots_) slot = {};
    in_use_.reset();
    first_ = claimed_ = delivered_ = first;
    end_ = end;
  }
  slot_free_.notify_all();
}

std::optional<int> BatchRing::next() {
  if (fillers_.empty()) return fill_inline();
  std::unique_lock lock(mutex_);
  if (in_use_) {
    slots_[*in_use_].state = State::kEmpty;
    in_use_.reset();
    slot_free_.notify_one();
  }
  if (delivered_ >= end_) return std::nullopt;
  const int index = slot_of(delivered_);
  Slot& slot = slots_[index];
  if (is_recording()) record_ready_batches();
  slot_filled_.wait(lock,
                    [&] { return slot.state == State::kFull || slot.state == State::kFailed; });
  if (slot.state == State::kFailed) {
    const std::exception_ptr error = std::exchange(slot.error, nullptr);
    end_ = delivered_ = claimed_;
    std::rethrow_exception(error);
  }
  ++delivered_;
  in_use_ = index;
  return index;
}

void BatchRing::record_ready_batches() const {
  record_value("ready batches", std::ranges::count(slots_, State::kFull, &Slot::state));
}

std::optional<int> BatchRing::fill_inline() {
  if (delivered_ >= end_) return std::nullopt;
  const std::int64_t batch = delivered_;
  const int index = slot_of(batch);
  try {
    const SpanScope scope("load batch", "data", batch);
    fill_(index, batch);
  } catch (...) {
    end_ = delivered_;
    throw;
  }
  claimed_ = ++delivered_;
  return index;
}

void BatchRing::run_filler(const std::vector<int>& cpus) {
  if (!cpus.empty() && !pin_to_cpus(cpus)) {
    log_warning("BatchRing: cannot pin a thread to processors ", join(cpus));
  }
  wake_without_preempting();
  std::unique_lock lock(mutex_);
  for (;;) {
    slot_free_.wait(lock, [this] { return quit_ || work_left(); });
    if (quit_) return;
    const std::int64_t batch = claimed_++;
    const int index = slot_of(batch);
    slots_[index].state = State::kFilling;
    ++filling_;
    lock.unlock();
    std::exception_ptr error;
    try {
      const SpanScope scope("load batch", "data", batch);
      fill_(index, batch);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    --filling_;
    slots_[index] = {error ? State::kFailed : State::kFull, error};
    slot_filled_.notify_one();
    // Another slot may have become free while this thread was the only one awake.
    if (work_left()) slot_free_.notify_one();
  }
}

}  // namespace lockstep::data
