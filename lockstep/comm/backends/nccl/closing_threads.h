// Threads that close the libraries' groups. A close can take as long as the slowest peer.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace lockstep::nccl {

/// Safe to use from several threads.
class ClosingThreads {
 public:
  /// The instance of this process.
  static ClosingThreads& instance();

  ClosingThreads();
  /// Waits a few seconds at most for the threads that still run. They use static objects of the
  /// libraries, which are older than instance() and so are destroyed after it.
  ~ClosingThreads();
  ClosingThreads(const ClosingThreads&) = delete;
  ClosingThreads& operator=(const ClosingThreads&) = delete;

  /// Runs `job` on a new thread and waits for its end, at most `limit`. `job` must not throw.
  void run(std::function<void()> job, std::chrono::milliseconds limit);

 private:
  struct State;
  const std::shared_ptr<State> state_;  // shared with the threads
};

}  // namespace lockstep::nccl
