#include <lockstep/comm/backends/nccl/closing_threads.h>

#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace lockstep::nccl {
namespace {

// How long the process waits at exit. Peers that exit at the same time close their groups within
// this time; a peer that never does is not waited for any longer.
constexpr std::chrono::seconds kExitLimit{5};

}  // namespace

struct ClosingThreads::State {
  std::mutex mutex;          // guards the members below
  pid_t process = getpid();  // owns the threads; a forked child does not inherit them
  std::condition_variable changed;
  int running = 0;
};

ClosingThreads& ClosingThreads::instance() {
  static ClosingThreads threads;
  return threads;
}

ClosingThreads::ClosingThreads() : state_(std::make_shared<State>()) {}

ClosingThreads::~ClosingThreads() {
  if (state_->process != getpid()) return;
  std::unique_lock lock(state_->mutex);
  state_->changed.wait_for(lock, kExitLimit, [&] { return state_->running == 0; });
}

void ClosingThreads::run(std::function<void()> job, std::chrono::milliseconds limit) {
  const auto done = std::make_shared<bool>(false);
  const auto shared_job = std::make_shared<std::function<void()>>(std::move(job));
  std::function<void()> body = [state = state_, done, shared_job] {
    (*shared_job)();
    *shared_job = nullptr;  // frees what the job holds before its end is reported
    const std::scoped_lock lock(state->mutex);
    *done = true;
    --state->running;
    state->changed.notify_all();
  };
  std::unique_lock lock(state_->mutex);
  if (std::exchange(state_->process, getpid()) != getpid()) state_->running = 0;
  try {
    std::thread(std::move(body)).detach();
  } catch (const std::system_error&) {
    lock.unlock();  // without a new thread, the job runs and is destroyed here, without the lock
    (*shared_job)();
    return;
  }
  ++state_->running;
  state_->changed.wait_for(lock, limit, [&] { return *done; });
}

}  // namespace lockstep::nccl
