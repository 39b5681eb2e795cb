// The thread that completes the futures of operations that nobody waits for.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "operation.h"

namespace lockstep_c10d {

/// One for each process group, started by the first operation that needs it. Sleeps in the
/// transport while it waits for collectives, in the order in which they were called; where messages
/// are among them, whose order says nothing, it looks at all of them a few thousand times a second.
/// Must be stopped before it is dropped. Safe to use from several threads, none of which may hold
/// Python's lock.
class ProgressThread : public std::enable_shared_from_this<ProgressThread> {
 public:
  ProgressThread() = default;
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  void add(c10::intrusive_ptr<Operation> operation);
  /// Whether operations are left that have not ended.
  bool is_busy() const;
  /// Waits until the operations that it was given have ended, and for the thread. Further ones are
  /// not taken: their futures complete when somebody waits for their works.
  void stop();

 private:
  void run();
  static bool has_messages(const std::deque<c10::intrusive_ptr<Operation>>& operations);

  mutable std::mutex mutex_;
  std::condition_variable news_;
  std::deque<c10::intrusive_ptr<Operation>> operations_;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace lockstep_c10d
