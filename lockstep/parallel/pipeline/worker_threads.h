// Threads that stay between the steps of a pipeline.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace lockstep::pipeline {

/// One thread for each worker. Starting a thread costs more than a short step, and LibTorch keeps
/// state for each thread, such as its number of OpenMP threads. The destructor waits for the
/// threads. Not thread-safe: one thread at a time calls run().
class WorkerThreads {
 public:
  explicit WorkerThreads(int workers);
  ~WorkerThreads();
  WorkerThreads(const WorkerThreads&) = delete;
  WorkerThreads& operator=(const WorkerThreads&) = delete;

  /// Calls job(worker) on every thread and returns when all calls have returned. If calls throw,
  /// one of their exceptions is thrown here.
  void run(const std::function<void(int)>& job);

 private:
  void loop(int worker);
  void stop();

  std::mutex mutex_;  // guards what follows
  std::condition_variable begin_;
  std::condition_variable end_;
  const std::function<void(int)>* job_ = nullptr;
  std::uint64_t round_ = 0;
  std::size_t running_ = 0;
  bool stopped_ = false;
  std::exception_ptr error_;

  std::vector<std::thread> threads_;
};

}  // namespace lockstep::pipeline
