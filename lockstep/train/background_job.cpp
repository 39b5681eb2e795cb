#include <lockstep/train/background_job.h>

#include <csignal>
#include <utility>

namespace lockstep {
namespace {

// A thread begins with its creator's mask.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

BackgroundJob::~BackgroundJob() { join(); }

void BackgroundJob::start(std::function<void()> job) {
  wait();
  const BlockedSignals blocked;
  thread_ = std::thread([this, job = std::move(job)]() noexcept {
    try {
      job();
    } catch (...) {
      error_ = std::current_exception();
    }
  });
}

void BackgroundJob::wait() {
  join();
  if (const auto error = std::exchange(error_, nullptr)) std::rethrow_exception(error);
}

void BackgroundJob::join() noexcept {
  if (thread_.joinable()) thread_.join();
}

}  // namespace lockstep
