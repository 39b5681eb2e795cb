#include <lockstep/train/measuring/phase_timer.h>

#include <exception>
#include <utility>

#include <lockstep/core/capture_scope.h>
#include <lockstep/core/error.h>
#include <lockstep/core/log.h>

namespace lockstep::train {
namespace {

// The host is rarely more than a step or two ahead of the device, so the oldest of this many
// intervals has usually ended. Querying it costs less than keeping an event for each phase of an
// epoch.
constexpr std::size_t kKeptIntervals = 256;

thread_local PhaseTimer* timer_of_thread = nullptr;

}  // namespace

PhaseTimer::PhaseTimer(torch::Device device) : clock_(device) { timer_of_thread = this; }
PhaseTimer::~PhaseTimer() { timer_of_thread = nullptr; }

PhaseTimer* PhaseTimer::current() { return is_capturing() ? nullptr : timer_of_thread; }

void PhaseTimer::add(detail::StreamClock::Moment begin, double& seconds) {
  intervals_.push_back({.begin = std::move(begin), .end = clock_.record(), .seconds = &seconds});
  while (intervals_.size() > kKeptIntervals && intervals_.front().end.query()) add_oldest();
}

void PhaseTimer::add_oldest() {
  Interval& oldest = intervals_.front();
  *oldest.seconds += detail::StreamClock::seconds_between(oldest.begin, oldest.end);
  clock_.recycle(std::move(oldest.begin));
  clock_.recycle(std::move(oldest.end));
  intervals_.pop_front();
}

void PhaseTimer::settle() {
  detail::StreamClock::Moment here = clock_.record();
  here.synchronize();
  clock_.recycle(std::move(here));
  while (!intervals_.empty()) add_oldest();
}

PhaseSecondsScope::PhaseSecondsScope(double& seconds)
    : seconds_(seconds), timer_(PhaseTimer::current()) {
  if (timer_ != nullptr) {
    begin_.emplace(timer_->record());
  } else {
    start_ = Clock::now();
  }
}

PhaseSecondsScope::~PhaseSecondsScope() {
  if (timer_ == nullptr) {
    seconds_ += seconds_since(start_);
    return;
  }
  try {
    timer_->add(std::move(*begin_), seconds_);
  } catch (const std::exception& error) {  // the device has failed, and the next call reports it
    log_warning("a phase has no time of the device: ", first_line(error));
  }
}

}  // namespace lockstep::train
