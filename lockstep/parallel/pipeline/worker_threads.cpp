#include <lockstep/parallel/pipeline/worker_threads.h>

#include <utility>

namespace lockstep::pipeline {

WorkerThreads::WorkerThreads(int workers) {
  try {
    for (int worker = 0; worker < workers; ++worker) {
      threads_.emplace_back([this, worker] { loop(worker); });
    }
  } catch (...) {  // the system has no more threads
    stop();
    throw;
  }
}

WorkerThreads::~WorkerThreads() { stop(); }

void WorkerThreads::stop() {
  {
    const std::scoped_lock lock(mutex_);
    stopped_ = true;
  }
  begin_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerThreads::run(const std::function<void(int)>& job) {
  std::unique_lock lock(mutex_);
  job_ = &job;
  error_ = nullptr;
  running_ = threads_.size();
  ++round_;
  begin_.notify_all();
  end_.wait(lock, [&] { return running_ == 0; });
  job_ = nullptr;
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void WorkerThreads::loop(int worker) {
  std::uint64_t done = 0;
  for (;;) {
    const std::function<void(int)>* job = nullptr;
    {
      std::unique_lock lock(mutex_);
      begin_.wait(lock, [&] { return stopped_ || round_ != done; });
      if (stopped_) return;
      done = round_;
      job = job_;
    }
    std::exception_ptr error;
    try {
      (*job)(worker);
    } catch (...) {
      error = std::current_exception();
    }
    const std::scoped_lock lock(mutex_);
    if (error && !error_) error_ = error;
    if (--running_ == 0) end_.notify_one();
  }
}

}  // namespace lockstep::pipeline
