// The threads that complete the futures of operations that nobody waits for.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "operation.h"

namespace lockstep_c10d {

/// One set for each process group. One thread at a time drives the collectives: it sleeps in the
/// transport while it waits for them, in the order in which they were called. Another looks at the
/// messages, whose order says nothing, a few thousand times a second while there are some. A thread
/// that is about to run the callbacks of a future steps aside first, and another drives, because a
/// callback may wait for a further operation. There are as many threads as were ever needed at one
/// time; the first starts with the first operation that needs it. Must be stopped before it is
/// dropped. Safe to use from several threads, none of which may hold Python's lock.
class ProgressThreads : public std::enable_shared_from_this<ProgressThreads> {
 public:
  ProgressThreads() = default;
  ~ProgressThreads();
  ProgressThreads(const ProgressThreads&) = delete;
  ProgressThreads& operator=(const ProgressThreads&) = delete;

  /// std::system_error where no thread can be started and there is none yet; a later call tries
  /// again.
  void add(c10::intrusive_ptr<Operation> operation);
  /// Called before callbacks run, on whichever thread runs them.
  void step_aside();
  /// Whether operations are left that have not ended.
  bool is_busy() const;
  /// Waits until the operations that it was given have ended, and for the threads. Further ones are
  /// taken from callbacks that still run; the futures of others complete when somebody waits for
  /// their works.
  void stop();

 private:
  using Lock = std::unique_lock<std::mutex>;
  using Operations = std::deque<c10::intrusive_ptr<Operation>>;

  struct Queue {
    Operations operations;   ///< in the order in which they were added
    std::thread::id driver;  ///< none: nobody drives
    bool has_work() const;
  };

  void run();
  Queue* queue_without_driver();
  void find_driver();
  void start_thread();
  Operations next_operations(const Queue& queue) const;
  static void drive(const Operations& operations);
  void take_ended(Queue& queue, Operations& ended);

  mutable std::mutex mutex_;
  std::condition_variable turn_;  ///< somebody may drive, or all stop
  Queue collectives_, messages_;
  std::vector<std::thread> threads_;
  int idle_ = 0;  ///< threads that wait for their turn
  bool stopped_ = false;
};

}  // namespace lockstep_c10d
