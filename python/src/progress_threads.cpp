#include "progress_threads.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <system_error>
#include <utility>

namespace lockstep_c10d {
namespace {

// The ProgressThreads object to which this thread belongs.
thread_local const ProgressThreads* own_set = nullptr;

}  // namespace

// Threads are left only if a callback called stop() and continued to use the group.
ProgressThreads::~ProgressThreads() {
  for (std::thread& thread : threads_) thread.detach();
}

void ProgressThreads::add(c10::intrusive_ptr<Operation> operation) {
  const std::scoped_lock lock(mutex_);
  if (stopped_ && own_set != this) return;
  Queue& queue = operation->is_message() ? messages_ : collectives_;
  queue.operations.push_back(std::move(operation));
  find_driver();
}

void ProgressThreads::step_aside() {
  if (own_set != this) return;
  const std::scoped_lock lock(mutex_);
  for (Queue* queue : {&collectives_, &messages_}) {
    if (queue->driver == std::this_thread::get_id()) queue->driver = {};
  }
  find_driver();
}

void ProgressThreads::stop() {
  Lock lock(mutex_);
  stopped_ = true;
  turn_.notify_all();
  // A thread that ends may have started another one.
  while (!threads_.empty()) {
    std::thread thread = std::move(threads_.back());
    threads_.pop_back();
    lock.unlock();
    if (thread.get_id() == std::this_thread::get_id()) {
      thread.detach();  // a future's callback dropped the group; run() ends next
    } else {
      thread.join();
    }
    lock.lock();
  }
  // Drop operations that their callers have completed; each of them holds a reference to this
  // object.
  Operations ended;
  for (Queue* queue : {&collectives_, &messages_}) take_ended(*queue, ended);
  lock.unlock();
}

bool ProgressThreads::is_busy() const {
  const std::scoped_lock lock(mutex_);
  return collectives_.has_work() || messages_.has_work();
}

bool ProgressThreads::Queue::has_work() const {
  return !std::all_of(operations.begin(), operations.end(),
                      [](const auto& each) { return each->has_ended(); });
}

// The functions below are called with the lock held, unless stated otherwise. An operation may end
// at any moment on the thread of a caller that waits for it, so two checks of a queue may differ.

ProgressThreads::Queue* ProgressThreads::queue_without_driver() {
  for (Queue* queue : {&collectives_, &messages_}) {
    if (queue->driver == std::thread::id() && queue->has_work()) return queue;
  }
  return nullptr;
}

void ProgressThreads::find_driver() {
  if (queue_without_driver() == nullptr) return;
  if (idle_ > 0) {
    turn_.notify_one();
  } else {
    start_thread();
  }
}

// If a progress thread cannot start another one, it continues alone and drives both queues in turn.
void ProgressThreads::start_thread() {
  try {
    threads_.emplace_back([self = shared_from_this()] { self->run(); });
  } catch (const std::system_error&) {
    if (threads_.empty() && own_set != this) throw;
  }
}

// Called without the lock.
void ProgressThreads::run() {
  pthread_setname_np(pthread_self(), "lockstep_c10d");
  own_set = this;
  Lock lock(mutex_);
  while (true) {
    ++idle_;
    turn_.wait(lock, [this] { return stopped_ || queue_without_driver() != nullptr; });
    --idle_;
    Queue* const queue = queue_without_driver();
    if (queue == nullptr && stopped_) return;
    if (queue == nullptr) continue;
    queue->driver = std::this_thread::get_id();
    find_driver();  // for the other queue
    Operations operations = next_operations(*queue);
    lock.unlock();
    if (!operations.empty()) drive(operations);
    lock.lock();
    take_ended(*queue, operations);
    if (queue->driver == std::this_thread::get_id()) queue->driver = {};
    // Dropping the last reference to an operation drops its tensors, which may need the GIL.
    lock.unlock();
    operations.clear();
    lock.lock();
  }
}

// Returns all messages, or the first collective that has not ended: collectives end in order, so
// only the first one needs to be driven. Empty if all have ended.
ProgressThreads::Operations ProgressThreads::next_operations(const Queue& queue) const {
  if (&queue == &messages_) return queue.operations;
  const auto first = std::find_if(queue.operations.begin(), queue.operations.end(),
                                  [](const auto& each) { return !each->has_ended(); });
  if (first == queue.operations.end()) return {};
  return {*first};
}

// Waits until a collective has ended, or polls all messages once. Callbacks may run meanwhile, in
// which case another thread drives. Called without the lock.
void ProgressThreads::drive(const Operations& operations) {
  if (!operations.front()->is_message()) return operations.front()->drive();
  bool any_ended = false;
  for (const auto& each : operations) any_ended = each->isCompleted() || any_ended;
  if (!any_ended) std::this_thread::sleep_for(kBetweenLooks);
}

// Moves operations that have ended from `queue` to the end of `ended`.
void ProgressThreads::take_ended(Queue& queue, Operations& ended) {
  Operations& operations = queue.operations;
  const auto first_ended =
      &queue == &messages_
          ? std::stable_partition(operations.begin(), operations.end(),
                                  [](const auto& each) { return !each->has_ended(); })
          : operations.end();
  std::move(first_ended, operations.end(), std::back_inserter(ended));
  operations.erase(first_ended, operations.end());
  while (!operations.empty() && operations.front()->has_ended()) {
    ended.push_back(std::move(operations.front()));
    operations.pop_front();
  }
}

}  // namespace lockstep_c10d
