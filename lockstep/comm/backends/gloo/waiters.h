// Threads that wait for operations that cannot be polled: Gloo's sends and receives cannot report
// whether they are complete.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace lockstep::gloo {

/// Starts a thread only if no existing one is idle, so there are as many as there were jobs at
/// once. Safe to use from several threads.
class Waiters {
 public:
  Waiters() = default;
  /// Waits for the jobs; the owner must make them end first.
  ~Waiters();
  Waiters(const Waiters&) = delete;
  Waiters& operator=(const Waiters&) = delete;

  void run(std::function<void()> job);
  /// Ends the threads, after their jobs.
  void join();

 private:
  void work();

  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  std::vector<std::thread> threads_;
  std::size_t idle_ = 0;
  bool stop_ = false;
};

}  // namespace lockstep::gloo
