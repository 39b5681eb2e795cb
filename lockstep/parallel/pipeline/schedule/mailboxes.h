// First-in, first-out queues between the workers of a pipeline on threads of one process.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>

namespace lockstep::pipeline {

/// Thrown by a wait if another worker has ended the step. The error to report is that worker's.
class StepAborted : public Error {
 public:
  using Error::Error;
};

/// One queue for each ordered pair of workers. A send never waits for its receive, as
/// with_messages() requires. Thread-safe; only one thread at a time may receive from a queue.
template <class Value>
class Mailboxes {
 public:
  /// `timeout` limits how long a receive waits for its message.
  Mailboxes(int workers, Milliseconds timeout)
      : workers_(static_cast<std::size_t>(workers)),
        timeout_(timeout),
        boxes_(workers_ * workers_) {}

  void send(int from, int to, Value value) {
    Box& box = box_of(from, to);
    {
      const std::scoped_lock lock(box.mutex);
      box.values.push_back(std::move(value));
    }
    box.changed.notify_one();
  }

  /// Returns the oldest message from `from` to `to` that has not been received yet. Throws
  /// StepAborted after abort(), TimeoutError if no message arrives in time.
  Value receive(int from, int to) {
    Box& box = box_of(from, to);
    std::unique_lock lock(box.mutex);
    const bool came = box.changed.wait_for(lock, Deadline(timeout_).remaining(),
                                           [&] { return aborted_ || !box.values.empty(); });
    check();
    if (!came) {
      throw TimeoutError(str("waited ", timeout_.count(), " ms for a message of worker ", from));
    }
    Value value = std::move(box.values.front());
    box.values.pop_front();
    return value;
  }

  /// Throws StepAborted after abort(). A worker calls it between actions, because not every action
  /// receives something.
  void check() const {
    if (aborted_) throw StepAborted("another worker has ended the step");
  }

  /// Makes every current and later receive throw StepAborted.
  void abort() {
    aborted_ = true;
    for (Box& box : boxes_) {
      // A receiver holds this lock from its check of aborted_ until it waits.
      {
        const std::scoped_lock lock(box.mutex);
      }
      box.changed.notify_all();
    }
  }

  /// Drops all unreceived messages and forgets an abort(). No other call may be in progress.
  void reset() {
    for (Box& box : boxes_) {
      const std::scoped_lock lock(box.mutex);
      box.values.clear();
    }
    aborted_ = false;
  }

 private:
  struct Box {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Value> values;
  };

  Box& box_of(int from, int to) {
    return boxes_[static_cast<std::size_t>(from) * workers_ + static_cast<std::size_t>(to)];
  }

  const std::size_t workers_;
  const Milliseconds timeout_;
  std::vector<Box> boxes_;
  std::atomic<bool> aborted_ = false;
};

}  // namespace lockstep::pipeline
