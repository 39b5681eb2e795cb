// Determines the outcome of operations that only a device's streams wait for.
//
// The callers of these operations continue without waiting. A dedicated thread queries the device
// about one operation after the other, since they end in the order in which they were started. The
// watchdog's thread does not do this, because a query can block on a lock of the driver, and a rank
// whose watchdog blocks looks dead to its peers.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include <lockstep/comm/backends/nccl/stream_operation.h>

namespace lockstep::nccl {

/// The operations of one group that are under way. Safe to use from several threads.
class InFlight {
 public:
  using OperationPointer = std::shared_ptr<StreamOperation>;

  /// `context` must outlive this object.
  explicit InFlight(StreamContext& context) : context_(context) {}
  ~InFlight() { stop(); }
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;

  /// Adds an operation that the library has just started.
  OperationPointer add(WorkHandle handle, Call call);
  /// Queries the device about one operation, for a caller that waits for it or polls it. True once
  /// its outcome is known. The reason of a failure is found by the querying thread.
  bool ask(StreamOperation& operation);
  /// For the watchdog's thread. If the querying thread has long had no answer from the device, ends
  /// the group when the first operation has passed its deadline or a peer will not join it. Does
  /// not query the device.
  void judge();
  /// Frees the operations that have ended; their tensors may hold the last reference to memory.
  void free_ended();
  /// Fails all operations, including later ones.
  void fail(std::exception_ptr error);
  /// Stops querying the device. Returns the operations that have not ended.
  std::vector<OperationPointer> stop();

 private:
  using Lock = std::unique_lock<std::mutex>;

  void run();
  void judge_first();
  void look_at(StreamOperation& operation);
  bool answer_for(StreamOperation& operation);
  void explain(StreamOperation& operation, const std::string& text);
  void complete(StreamOperation& operation);
  bool is_behind_failed(const StreamOperation& operation);
  void forget_ended();
  bool is_stopped();

  StreamContext& context_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::deque<OperationPointer> operations_;        // in the order of their starts
  Clock::time_point first_since_{};                // when the first operation became the first
  std::optional<Clock::time_point> asking_since_;  // start of thread_'s query, while it runs
  std::vector<OperationPointer> ended_;  // callers, not thread_, free the tensors of these
  std::exception_ptr failure_;           // fails all operations, including later ones
  bool stop_ = false;
  std::thread thread_;
};

/// How long to pause before the next query, in a wait that has lasted for `waited`: an eighth of
/// that, but between `least` and `most`.
std::chrono::nanoseconds pause_after(std::chrono::nanoseconds waited,
                                     std::chrono::nanoseconds least, std::chrono::nanoseconds most);

}  // namespace lockstep::nccl
