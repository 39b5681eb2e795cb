#include <lockstep/parallel/base/thread_team.h>

#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <optional>
#include <utility>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <lockstep/core/trace/span_recorder.h>

namespace lockstep::detail {
namespace {

// The team that this thread is a member of.
thread_local const void* own_team = nullptr;

// Yields the processor to other threads until ready() is true or `patience` has passed.
template <class Ready>
void yield_until(const Ready& ready, std::chrono::microseconds patience) {
  if (patience.count() == 0) return;
  const Clock::time_point end = Clock::now() + patience;
  while (!ready() && Clock::now() < end) sched_yield();
}

}  // namespace

struct ThreadTeam::State {
  explicit State(std::chrono::microseconds patience) : patience(patience) {}

  // An exception of a member. Its text is copied on the member's thread, where the exception ends.
  struct Failure {
    bool is_config_error = false;
    std::string text;
  };
  static std::optional<Failure> failure_of(const Task& task, std::size_t member);

  const std::chrono::microseconds patience;

  std::mutex mutex;  // guards the members below; the two numbers are also read without it
  std::condition_variable begin;
  std::condition_variable end;
  const Task* task = nullptr;            // valid while any member is working
  std::atomic<std::uint64_t> round = 0;  // the number of calls of run()
  std::atomic<std::size_t> working = 0;
  bool stops = false;
  std::vector<std::optional<Failure>> failures;
};

std::optional<ThreadTeam::State::Failure> ThreadTeam::State::failure_of(const Task& task,
                                                                        std::size_t member) {
  try {
    const SpanScope scope("works", "team");
    task(member);
    return std::nullopt;
  } catch (const ConfigError& error) {
    return Failure{true, first_line(error)};
  } catch (const std::exception& error) {
    return Failure{false, first_line(error)};
  } catch (...) {
    return Failure{false, kForeignException};
  }
}

ThreadTeam::ThreadTeam(std::vector<std::string> names, std::chrono::microseconds patience)
    : names_(std::move(names)), state_(std::make_shared<State>(patience)) {
  state_->failures.resize(size());
  threads_.reserve(size());
  try {
    for (std::size_t member = 0; member < size(); ++member) {
      threads_.emplace_back([state = state_, member, name = names_[member]] {
        name_thread_track(name);
        work(state, member);
      });
    }
  } catch (...) {
    end();
    throw;
  }
}

ThreadTeam::~ThreadTeam() { end(); }

void ThreadTeam::end() noexcept {
  {
    const std::scoped_lock lock(state_->mutex);
    state_->stops = true;
  }
  state_->begin.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.get_id() == std::this_thread::get_id()) {
      thread.detach();
    } else {
      thread.join();
    }
  }
}

void ThreadTeam::work(const std::shared_ptr<State>& state, std::size_t member) {
  own_team = state.get();
  std::uint64_t done = 0;
  for (;;) {
    yield_until([&] { return state->round != done; }, state->patience);
    std::unique_lock lock(state->mutex);
    state->begin.wait(lock, [&] { return state->stops || state->round != done; });
    if (state->stops) return;
    done = state->round;
    const Task& task = *state->task;
    lock.unlock();
    std::optional<State::Failure> failure = State::failure_of(task, member);
    lock.lock();
    state->failures[member] = std::move(failure);
    if (--state->working == 0) state->end.notify_all();
  }
}

void ThreadTeam::refuse_members() const {
  if (own_team != state_.get()) return;
  throw ConfigError(
      "a replica or stage called the DataParallel or Pipeline that it belongs to, which would wait "
      "for itself");
}

void ThreadTeam::run(const Task& task) {
  refuse_members();
  const std::scoped_lock one_run(running_);
  std::unique_lock lock(state_->mutex);
  state_->task = &task;
  state_->working = size();
  ++state_->round;
  lock.unlock();
  state_->begin.notify_all();
  yield_until([&] { return state_->working == 0; }, state_->patience);
  lock.lock();
  state_->end.wait(lock, [&] { return state_->working == 0; });
  state_->task = nullptr;
  for (std::size_t member = 0; member < size(); ++member) {
    const std::optional<State::Failure>& failure = state_->failures[member];
    if (!failure) continue;
    const std::string text = str(names_[member], ": ", failure->text);
    if (failure->is_config_error) throw ConfigError(text);
    throw Error(text);
  }
}

}  // namespace lockstep::detail
