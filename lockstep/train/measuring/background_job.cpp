#include <lockstep/train/measuring/background_job.h>

#include <csignal>
#include <system_error>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/core/log.h>

namespace lockstep::train {
namespace {

// A new thread inherits its creator's signal mask.
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

BackgroundJob::~BackgroundJob() {
  try {
    wait();
  } catch (const std::exception& error) {
    log_warning("in the background: ", first_line(error));
  } catch (...) {
    log_warning(std::string("in the background: ") + kForeignException);
  }
}

void BackgroundJob::start(std::function<void()> job) {
  wait();
  const BlockedSignals blocked;
  try {
    thread_ = std::thread([this, job = std::move(job)]() noexcept {
      try {
        job();
      } catch (...) {
        error_ = std::current_exception();
      }
    });
  } catch (const std::system_error& error) {
    throw Error(str("cannot start a thread that works in the background: ", error.what(),
                    "; raise the limit of threads, or remove CheckpointOptions::background"));
  }
}

void BackgroundJob::wait() {
  join();
  if (const auto error = std::exchange(error_, nullptr)) std::rethrow_exception(error);
}

void BackgroundJob::join() noexcept {
  if (thread_.joinable()) thread_.join();
}

}  // namespace lockstep::train
