// State shared by the operations of a group: the library's group, the watchdog, and their end.
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

/// How long a failed operation looks for the reason: a dead peer is known after three beats, a dead
/// store's after a grace of a second.
inline constexpr std::chrono::milliseconds kInquiry{1500};
/// How long to wait for a peer's abort reason.
inline constexpr std::chrono::milliseconds kNews{300};
inline constexpr std::chrono::milliseconds kInquiryPause{50};

/// One call, for messages and for the watchdog.
struct Call {
  CallDescription description;
  std::optional<std::uint64_t> number;  ///< of collectives, and of what a message is a part of
  bool part_of_schedule = false;        ///< which has told the watchdog
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
  /// What streams of the device wait for; not Gloo's operations.
  InFlight& in_flight() { return *in_flight_; }
  DeviceQueries& device() { return *options_.device_queries; }
  /// The progress of all operations of this rank, in every group.
  Progress& progress() { return *progress_; }
  const std::shared_ptr<Progress>& progress_pointer() const { return progress_; }
  /// The group has ended: what was interrupted stays so.
  bool is_broken() const { return broken_; }

  std::string own_name() const { return lockstep::str("rank ", watchdog_->world_rank(rank())); }

  /// Runs the call of the library that starts an operation. A failure ends the group.
  WorkHandle start(const Call& call, const std::function<WorkHandle()>& function);
  /// The operation has ended.
  void release(const WorkHandle& work);

  /// While it lives a wait in Gloo may reach `deadline`, at which Gloo closes all connections:
  /// after that a closed one says nothing about its peer.
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

  /// What became of an operation that failed in the library with `text`: throws the reason once it
  /// is known (a peer died or left, somebody ended the group), or at `deadline` what the library
  /// said. Before that returns. Ends the group.
  void explain(const Call& call, const std::string& text, const Deadline& deadline);
  /// Throws when a peer has been gone for so long that `call` will not end.
  void check_departed(const Call& call);
  /// Throws when `call`, which has been the first in its stream since `since`, will not end: it is
  /// over the group's timeout, or a peer that it needs is gone or left. Ends the group then.
  void check_in_flight(const Call& call, Clock::time_point since);
  /// What the library said of `call` is its end and the group's: throws the reason once it is
  /// known.
  [[noreturn]] void fail(const Call& call, const std::string& text);
  /// Throws TimeoutError: `call` reached its deadline. Ends the group.
  [[noreturn]] void time_out(const Call& call, std::chrono::milliseconds timeout);
  [[noreturn]] void end_group(const std::string& reason, bool late = false);
  /// Ends the group, and every wait of this rank; the first reason wins.
  void abort(const std::string& reason, bool late = false);
  /// Where the group has ended: all operations in flight have failed, and the library is told. On
  /// any thread; the first call counts. Nothing over Gloo.
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
  std::vector<WorkHandle> probes_;              // by rank; of the watchdog's thread
  std::mutex mutex_;                            // guards the members below
  std::multiset<Clock::time_point> deadlines_;  // at which Gloo closes the connections
  std::vector<WorkHandle> outstanding_;         // what Gloo may still be working on
  c10::intrusive_ptr<c10d::Backend> backend_;
  Waiters waiters_;
  std::unique_ptr<InFlight> in_flight_;
  std::unique_ptr<Watchdog> watchdog_;
};

}  // namespace lockstep::c10d_adapter
