#include "progress_thread.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace lockstep_c10d {
namespace {

constexpr std::chrono::microseconds kBetweenLooks{200};

}  // namespace

void ProgressThread::add(c10::intrusive_ptr<Operation> operation) {
  {
    const std::scoped_lock lock(mutex_);
    if (stopped_) return;
    operations_.push_back(std::move(operation));
    if (!thread_.joinable()) thread_ = std::thread([self = shared_from_this()] { self->run(); });
  }
  news_.notify_one();
}

bool ProgressThread::is_busy() const {
  const std::scoped_lock lock(mutex_);
  return !std::all_of(operations_.begin(), operations_.end(),
                      [](const auto& each) { return each->has_ended(); });
}

void ProgressThread::stop() {
  std::thread thread;
  {
    const std::scoped_lock lock(mutex_);
    stopped_ = true;
    thread = std::move(thread_);
  }
  news_.notify_one();
  if (thread.get_id() == std::this_thread::get_id()) {
    thread.detach();  // a future's callback dropped the group; run() ends next
  } else if (thread.joinable()) {
    thread.join();
  }
}

bool ProgressThread::has_messages(const std::deque<c10::intrusive_ptr<Operation>>& operations) {
  return std::any_of(operations.begin(), operations.end(),
                     [](const auto& each) { return each->is_message(); });
}

void ProgressThread::run() {
  pthread_setname_np(pthread_self(), "lockstep_c10d");
  std::unique_lock lock(mutex_);
  while (true) {
    news_.wait(lock, [this] { return stopped_ || !operations_.empty(); });
    if (operations_.empty()) return;
    const bool in_turn = operations_.size() == 1 || !has_messages(operations_);
    auto looked_at = operations_;
    lock.unlock();
    if (in_turn) {
      looked_at.front()->drive();
    }
    std::erase_if(looked_at, [](const auto& each) { return !each->isCompleted(); });
    lock.lock();
    std::erase_if(operations_, [&](const auto& each) {
      return std::find(looked_at.begin(), looked_at.end(), each) != looked_at.end();
    });
    if (looked_at.empty()) news_.wait_for(lock, kBetweenLooks);
    // Outside of the lock: the last one to drop an operation drops tensors, which may need Python.
    lock.unlock();
    looked_at.clear();
    lock.lock();
  }
}

}  // namespace lockstep_c10d
