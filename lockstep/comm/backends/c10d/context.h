// State shared by the operations of a group: the library's group, the watchdog, and the group's
// end.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <lockstep/comm/backends/c10d/c10d_backend.h>
#include <lockstep/comm/backends/c10d/waiters.h>
#include <lockstep/comm/diagnostics/watchdog.h>
#include <lockstep/comm/waiting/progress.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/strings.h>

namespace lockstep::c10d_adapter {

using WorkHandle = c10::intrusive_ptr<c10d::Work>;

/// How long to look for the reason of a failed operation. A dead peer is known after three
/// heartbeats, the death of the rank that serves the store after one second.
inline constexpr std::chrono::milliseconds kInquiry{1500};
/// How long to wait for a peer's abort reason.
inline constexpr std::chrono::milliseconds kNews{300};
inline constexpr std::chrono::milliseconds kInquiryPause{50};

/// One call, for messages and for the watchdog.
struct Call {
  CallDescription description;
  std::optional<std::uint64_t> number;  ///< of the collective that it is or belongs to
  bool part_of_schedule = false;        ///< the schedule itself reports to the watchdog
  std::string text() const { return describe_numbered(description, number); }
};

class InFlight;

/// Safe to use from several threads.
class Context {
 public:
  Context(c10::intrusive_ptr<c10d::Backend> backend, c10::intrusive_ptr<c10d::Store> store,
          AdapterOptions options);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  c10d::Backend& library() { return *backend_; }
  const std::string& name() const { return name_; }
  const AdapterOptions& options() const { return options_; }
  bool is_gloo() const { return options_.library == Library::kGloo; }
  int rank() const { return backend_->getRank(); }
  int size() const { return backend_->getSize(); }
  Watchdog& watchdog() { return *watchdog_; }
  Waiters& waiters() { return waiters_; }
  /// The operations in the device's streams. Must not be called over Gloo.
  InFlight& in_flight() { return *in_flight_; }
  DeviceQueries& device() { return *options_.device_queries; }
  /// The progress of all operations of this rank, in every group.
  Progress& progress() { return *progress_; }
  const std::shared_ptr<Progress>& progress_pointer() const { return progress_; }
  /// Whether the library's group was aborted, or over Gloo, its connections were closed. An
  /// interrupted operation is then not waited for again.
  bool is_broken() const { return broken_; }

  std::string own_name() const { return lockstep::str("rank ", watchdog_->world_rank(rank())); }

  /// Calls `function`, which starts an operation of the library. A failure ends the group.
  WorkHandle start(const Call& call, const std::function<WorkHandle()>& function);
  /// Must be called when the operation has ended.
  void release(const WorkHandle& work);

  /// Exists while a wait in Gloo may reach `deadline`. Gloo then closes all connections, and a
  /// closed connection no longer means that the peer has died.
  class MayClose {
   public:
    MayClose(Context& context, Clock::time_point deadline);
    ~MayClose();
    MayClose(const MayClose&) = delete;
    MayClose& operator=(const MayClose&) = delete;

   private:
    Context& context_;
    std::multiset<Clock::time_point>::iterator place_;
  };

  /// Explains why an operation failed in the library with `text`. Ends the group and throws the
  /// reason once it is known (a peer died or left, or a rank ended the group). At `deadline` it
  /// throws the library's error instead. Returns if it is too early for either.
  void explain(const Call& call, const std::string& text, const Deadline& deadline);
  /// Ends the group and throws if a peer has been gone for so long that `call` cannot complete.
  void check_departed(const Call& call);
  /// Ends the group and throws if `call`, which has been the first in its stream since `since`, has
  /// passed the group's timeout, or if a peer that it needs has died or left.
  void check_in_flight(const Call& call, Clock::time_point since);
  /// `call` failed in the library with the error `text`. Ends the group, and throws the reason once
  /// it is known.
  [[noreturn]] void fail(const Call& call, const std::string& text);
  /// Ends the group and throws TimeoutError, because `call` has reached its deadline.
  [[noreturn]] void time_out(const Call& call, std::chrono::milliseconds timeout);
  [[noreturn]] void end_group(const std::string& reason, bool late = false);
  /// Ends the group, and every wait of this rank; the first reason wins.
  void abort(const std::string& reason, bool late = false);
  /// If the group has ended, fails all operations in flight and aborts the library's group. May be
  /// called on any thread; later calls have no effect. A no-op over Gloo.
  void carry_out_end();

 private:
  bool disconnected(int rank);
  bool is_closed(int rank);
  void nudge();
  void break_connections();
  void wait_for_watchdog();
  void judge_in_flight();
  std::exception_ptr end() const;
  void leave_gloo();
  void leave_streams();
  bool all_ended();
  void forget_ended();
  void hold(const WorkHandle& work);

  const c10::intrusive_ptr<c10d::Store> store_;
  const AdapterOptions options_;
  const std::string name_;
  const std::shared_ptr<Progress> progress_;
  std::atomic<bool> broken_ = false;
  std::vector<WorkHandle> probes_;              // by rank; used by the watchdog's thread
  std::mutex mutex_;                            // guards the members below
  std::multiset<Clock::time_point> deadlines_;  // at which Gloo closes the connections
  std::vector<WorkHandle> outstanding_;         // operations that Gloo may still run
  c10::intrusive_ptr<c10d::Backend> backend_;
  Waiters waiters_;
  std::unique_ptr<InFlight> in_flight_;
  std::unique_ptr<Watchdog> watchdog_;
};

}  // namespace lockstep::c10d_adapter
