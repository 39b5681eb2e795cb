// One job at a time on a thread of its own.
#pragma once

#include <exception>
#include <functional>
#include <thread>

namespace lockstep {

/// What a job throws never leaves its thread: the next start() or wait() throws it in the caller's.
/// For one thread at a time. Signals are left to the other threads of the process.
class BackgroundJob {
 public:
  BackgroundJob() = default;
  /// Waits for the job. Its error goes to the log as a warning.
  ~BackgroundJob();
  BackgroundJob(const BackgroundJob&) = delete;
  BackgroundJob& operator=(const BackgroundJob&) = delete;

  /// Waits for the job before. Throws what it has thrown, and then does not begin `job`. Error when
  /// there can be no further thread.
  void start(std::function<void()> job);
  /// Waits for the job. Throws what it has thrown, once.
  void wait();

 private:
  void join() noexcept;

  std::thread thread_{};
  std::exception_ptr error_{};  // written by the thread, read when it has ended
};

}  // namespace lockstep
