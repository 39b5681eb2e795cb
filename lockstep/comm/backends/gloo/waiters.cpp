#include <lockstep/comm/backends/gloo/waiters.h>

#include <utility>

namespace lockstep::gloo {

Waiters::~Waiters() { join(); }

void Waiters::run(std::function<void()> job) {
  const std::scoped_lock lock(mutex_);
  jobs_.push_back(std::move(job));
  if (jobs_.size() > idle_) {
    threads_.emplace_back([this] { work(); });
  } else {
    changed_.notify_one();
  }
}

void Waiters::join() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  for (auto& thread : threads_) thread.join();
  threads_.clear();
}

void Waiters::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++idle_;
    changed_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
    --idle_;
    if (jobs_.empty()) return;
    auto job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    job = nullptr;
    lock.lock();
  }
}

}  // namespace lockstep::gloo
