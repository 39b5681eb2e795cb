// State shared by the operations of a group: the library's group, the watchdog, and the group's
// end.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <lockstep/comm/backends/c10d/adapter_options.h>
#include <lockstep/comm/diagnostics/watchdog.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/strings.h>

namespace lockstep::c10d_adapter {

using WorkHandle = c10::intrusive_ptr<c10d::Work>;

/// How long to look for the reason of a failed operation. A peer's death is known after three
/// missed heartbeats, that of the rank that serves the store after one second.
inline constexpr std::chrono::milliseconds kInquiry{1500};
/// How long to wait for a peer's abort reason.
inline constexpr std::chrono::milliseconds kNews{300};
inline constexpr std::chrono::milliseconds kInquiryPause{50};

/// One call, for messages and for the watchdog.
struct Call {
  CallDescription description;
  std::optional<std::uint64_t> number;  ///< number of the collective that the call is or belongs to
  bool part_of_schedule = false;        ///< if so, the schedule itself reports to the watchdog
  std::string text() const { return comm::describe_numbered(description, number); }
};

/// Derived classes define how their library ends a group: in abort(), and when this rank leaves.
/// Safe to use from several threads.
class Context {
 public:
  virtual ~Context() = default;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  c10d::Backend& library() { return *backend_; }
  const std::string& name() const { return name_; }
  const AdapterOptions& options() const { return options_; }
  int rank() const { return backend_->getRank(); }
  int size() const { return backend_->getSize(); }
  comm::Watchdog& watchdog() { return *watchdog_; }

  std::string own_name() const { return lockstep::str("rank ", watchdog_->world_rank(rank())); }

  /// Calls `function`, which starts an operation of the library. A failure ends the group.
  WorkHandle start(const Call& call, const std::function<WorkHandle()>& function);

  /// Explains why an operation failed in the library with `text`. Ends the group and throws the
  /// reason once it is known (a peer died or left, or a rank ended the group). At `deadline` it
  /// throws the library's error instead. Returns if it is too early for either.
  void explain(const Call& call, const std::string& text, const Deadline& deadline);
  /// Ends the group and throws if a peer has been gone for so long that `call` cannot complete.
  void check_departed(const Call& call);
  /// `call` failed in the library with the error `text`. Ends the group, and throws the reason once
  /// it is known.
  [[noreturn]] void fail(const Call& call, const std::string& text);
  /// Ends the group and throws TimeoutError, because `call` has reached its deadline.
  [[noreturn]] void time_out(const Call& call, std::chrono::milliseconds timeout);
  [[noreturn]] void end_group(const std::string& reason, bool late = false);
  /// Ends the group, and every wait of this rank; the first reason wins.
  void abort(const std::string& reason, bool late = false);

 protected:
  /// `name` is the backend's name.
  Context(std::string name, c10::intrusive_ptr<c10d::Backend> backend,
          c10::intrusive_ptr<c10d::Store> store, AdapterOptions options);

  /// The part of options() that the watchdog needs.
  comm::WatchdogOptions watchdog_options() const;
  /// Makes the watchdog, whose thread may call the callbacks of `options` before this returns. Must
  /// be the last step of the constructor.
  void watch(comm::WatchdogOptions options);
  /// Waits until watch() has stored the watchdog.
  void wait_for_watchdog();
  /// The error with which the group has ended; null if it has not.
  std::exception_ptr end() const;

 private:
  const c10::intrusive_ptr<c10d::Store> store_;
  const AdapterOptions options_;
  const std::string name_;
  std::mutex mutex_;  // held while watchdog_ is made

 protected:
  c10::intrusive_ptr<c10d::Backend> backend_;
  std::unique_ptr<comm::Watchdog> watchdog_;

 private:
  /// Called with each operation that the library has started.
  virtual void hold(const WorkHandle& /*work*/) {}
  /// Ends all waits of this rank in the library. Called when the group has ended.
  virtual void interrupt() = 0;
  /// The part of the library's error text that is worth adding to a known reason; may be empty.
  virtual std::string addition(const std::string& text) const = 0;
};

}  // namespace lockstep::c10d_adapter
