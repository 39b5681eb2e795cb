// Determines how operations end when only streams of a device wait for them.
//
// Nobody else would: their callers go on. A thread asks the device, one operation after the other,
// for they end in the order in which they were started. It is not the watchdog's, because a query
// can be held up by a lock of the driver, and a rank whose watchdog waits looks dead to its peers.
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

#include <lockstep/comm/backends/c10d/stream_operation.h>

namespace lockstep::c10d_adapter {

/// The operations of one group that are under way. Safe to use from several threads.
class InFlight {
 public:
  using Operation = std::shared_ptr<StreamOperation>;

  /// `context` must outlive it.
  explicit InFlight(Context& context) : context_(context) {}
  ~InFlight() { stop(); }
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;

  /// Adds an operation that the library has just started.
  Operation add(WorkHandle handle, Call call);
  /// Asks the device for one operation, for a caller who waits for it or wants to know. True once
  /// it is known how it ended. The thread investigates failures.
  bool ask(StreamOperation& operation);
  /// For the watchdog's thread. Ends the group if the first operation has passed its deadline or a
  /// peer will not join it, and the querying thread has had no answer from the device for long.
  /// Does not query the device itself.
  void judge();
  /// Frees the operations that have ended; their tensors may hold the last reference to memory.
  void free_ended();
  /// Fails all operations, including later ones.
  void fail(std::exception_ptr error);
  /// Stops querying the device. Returns the operations that have not ended.
  std::vector<Operation> stop();

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

  Context& context_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::deque<Operation> operations_;               // in the order of their starts
  Clock::time_point first_since_{};                // when all before the first had ended
  std::optional<Clock::time_point> asking_since_;  // the thread, while it waits for an answer
  std::vector<Operation> ended_;  // their tensors are freed by callers, not by the thread
  std::exception_ptr failure_;    // of all
  bool stop_ = false;
  std::thread thread_;
};

/// How long to wait before asking again, in a wait that has lasted for `waited`: the answer comes
/// at most an eighth late, but not earlier than `least`.
std::chrono::nanoseconds pause_after(std::chrono::nanoseconds waited,
                                     std::chrono::nanoseconds least, std::chrono::nanoseconds most);

}  // namespace lockstep::c10d_adapter
