// Runs one job at a time on a thread of its own.
#pragma once

#include <exception>
#include <functional>
#include <thread>

namespace lockstep::train {

/// Exceptions of a job are rethrown by the next start() or wait(). Only one thread at a time may
/// use it. The job's thread blocks signals, so that other threads of the process get them.
class BackgroundJob {
 public:
  BackgroundJob() = default;
  /// Waits for the job. Logs its error, if any, as a warning.
  ~BackgroundJob();
  BackgroundJob(const BackgroundJob&) = delete;
  BackgroundJob& operator=(const BackgroundJob&) = delete;

  /// Waits for the previous job, then starts `job`. If the previous job failed, throws its error
  /// and does not start `job`. Throws Error if no thread can be created.
  void start(std::function<void()> job);
  /// Waits for the job. Throws its error, once.
  void wait();

 private:
  void join() noexcept;

  std::thread thread_{};
  std::exception_ptr error_{};  // written by the thread, read after it has ended
};

}  // namespace lockstep::train
