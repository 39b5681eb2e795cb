// The threads that complete the futures of operations for which no caller waits.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "operation.h"

namespace lockstep_c10d {

/// The progress threads of one process group. One thread at a time drives the collectives: it waits
/// for them in the order of their calls and sleeps in the transport meanwhile. Another thread polls
/// the messages, which may complete in any order, a few thousand times per second while there are
/// any. Before a thread runs the callbacks of a future, it steps aside and another thread drives,
/// because a callback may wait for another operation. Threads are started when they are needed and
/// kept until stop(), which must be called before the last owner drops the object. Safe to use from
/// several threads, none of which may hold the GIL.
class ProgressThreads : public std::enable_shared_from_this<ProgressThreads> {
 public:
  ProgressThreads() = default;
  ~ProgressThreads();
  ProgressThreads(const ProgressThreads&) = delete;
  ProgressThreads& operator=(const ProgressThreads&) = delete;

  /// Throws std::system_error if there is no thread yet and none can be started. A later call tries
  /// again.
  void add(c10::intrusive_ptr<Operation> operation);
  /// Must be called before the callbacks of a future run, on the thread that runs them.
  void step_aside();
  /// Whether some operations have not ended.
  bool is_busy() const;
  /// Waits until all added operations and all threads have ended. Callbacks that are still running
  /// may add more operations. The future of an operation that is added by another thread, or later,
  /// completes when a caller waits for its Work.
  void stop();

 private:
  using Lock = std::unique_lock<std::mutex>;
  using Operations = std::deque<c10::intrusive_ptr<Operation>>;

  struct Queue {
    Operations operations;   ///< in the order in which they were added
    std::thread::id driver;  ///< default-constructed if no thread drives the queue
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
  std::condition_variable turn_;  ///< signals that a thread may drive or that all must stop
  Queue collectives_, messages_;
  std::vector<std::thread> threads_;
  int idle_ = 0;  ///< threads that wait for their turn
  bool stopped_ = false;
};

}  // namespace lockstep_c10d
