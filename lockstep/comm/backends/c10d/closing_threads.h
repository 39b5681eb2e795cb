// Threads on which groups of libraries are closed, because that can take as long as a peer does.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace lockstep::c10d_adapter {

/// Safe to use from several threads.
class ClosingThreads {
 public:
  /// The one of this process.
  static ClosingThreads& instance();

  ClosingThreads();
  /// Waits for the threads that still run, at most some seconds. They use the libraries' objects
  /// with static storage duration: those are older than instance(), and so are destroyed after it.
  ~ClosingThreads();
  ClosingThreads(const ClosingThreads&) = delete;
  ClosingThreads& operator=(const ClosingThreads&) = delete;

  /// Runs `job`, which must not throw, on a thread of its own, and waits for its end at most
  /// `limit`.
  void run(std::function<void()> job, std::chrono::milliseconds limit);

 private:
  struct State;
  const std::shared_ptr<State> state_;  // the threads', too
};

}  // namespace lockstep::c10d_adapter
