// Monitors the peers of a group without shared memory: whether they are alive, which call each is
// in, and whether a rank ended the group. It also ends a group whose ranks wait for each other
// because they called different collectives.
//
// Every rank has one thread that looks at the store four times a second: over a connection of its
// own, it writes its status and reads the status of the others. Waits use the thread's findings and
// never query the store themselves, because a store on a stopped host does not answer.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <lockstep/comm/call/description.h>

namespace lockstep::comm {

struct WatchdogOptions {
  std::chrono::milliseconds beat{250};
  /// The members' ranks in the first group, used in messages. Empty: this is the first group.
  std::vector<int> world_ranks{};
  /// The rank of this group that serves the store: if the store is gone, so is that rank. -1: none.
  int store_rank = 0;
  /// Whether the connection to a peer is closed; distinguishes a dead process from a stopped one.
  /// Called on the watchdog's thread for a peer that is silent or has left.
  std::function<bool(int rank)> disconnected{};
  /// How long a peer may be silent before its host is probed. If the host does not answer, the peer
  /// is dead or unreachable, and the group ends. Zero: no host is probed.
  std::chrono::milliseconds host_timeout{0};
  /// How long a peer may be silent before it counts as dead and the group ends, for groups without
  /// connections whose state can be queried. Zero: silence alone ends nothing.
  std::chrono::milliseconds silence_limit{0};
  /// This host's address, at which peers check that the host answers. If empty, peers cannot check.
  std::string own_address{};
  /// Called once, on the watchdog's thread, when the group has ended, to wake waiting threads. Not
  /// called after leave().
  std::function<void()> ended{};
  /// Deletes this rank's keys. Called on the watchdog's thread when this rank leaves and the store
  /// is alive.
  std::function<void()> farewell{};
  /// Called on the watchdog's thread each time after it has read the store.
  std::function<void()> looked{};
};

/// Safe to use from several threads. Only leave() and wait_for_news() may block.
class Watchdog {
 public:
  using Ticket = std::uint64_t;

  /// `store` holds only this group's keys. After its first look the watchdog clones the store, so
  /// that blocking calls by other users of the store do not delay its status. A store that cannot
  /// be cloned is used directly. (Cloning at once would cost tens of milliseconds, longer than many
  /// groups live.)
  Watchdog(c10::intrusive_ptr<c10d::Store> store, int rank, int size, WatchdogOptions options);
  /// Calls leave() if it has not been called.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Tells the peers that this rank is leaving, and joins the thread. If the thread is waiting for
  /// a store that does not answer, it is not joined and ends when the store answers. Afterwards no
  /// function of the options is called. Only one thread may call leave().
  void leave();

  /// Records a call by this rank for its status. Only collectives have a `number`.
  Ticket started(const CallDescription& call, std::optional<std::uint64_t> number);
  void completed(Ticket ticket);
  /// Records a collective that completed as soon as it was called.
  void note(const CallDescription& call, std::uint64_t number);

  /// Ends the group, on this rank at once and on the peers when their watchdogs next look. The
  /// first reason wins. If `late`, waits throw TimeoutError instead of CommError.
  void abort(const std::string& reason, bool late = false);
  /// Throws CommError or TimeoutError with the reason if the group has ended.
  void throw_if_ended() const;

  /// Why an operation may have failed: "rank 2 died (no sign of life for 0.9 s)", "rank 1 left the
  /// group". For a message to or from `peer`, that rank is reported first. If the store is gone,
  /// the exact cause is unknown: "rank 0 died or left the group (its store is gone)", "rank 2 died
  /// or left the group (its connection is closed, and the store, which would know, is gone)". Empty
  /// if nothing is known. Calling this makes the watchdog look more frequently for a moment.
  std::string explanation(std::optional<int> peer = std::nullopt);
  /// The store's last error, as in "rank 1 cannot use the store: ..."; empty if the store works.
  std::string store_trouble() const;
  /// Like missing(), for a collective `number` that has not failed: names a rank that has not
  /// called it and whose connection has been closed for a second.
  std::string departed(std::uint64_t number) const;
  /// Like departed(), for a message to or from `peer`, if that rank has been gone for a second.
  std::string left(int peer) const;
  /// Like departed(), for the rank that serves the store, in groups without connections whose state
  /// can be queried. Not empty once the store has been gone, or has not answered, for `limit`: an
  /// operation that needs that rank will then never end.
  std::string lost_store(std::chrono::milliseconds limit) const;
  /// Makes the watchdog look at the store immediately, and more frequently for a moment.
  void hurry();
  /// Waits until the watchdog has looked again, at most `timeout`.
  void wait_for_news(std::chrono::milliseconds timeout);

  /// For an operation that reached its deadline: the ranks that have not called collective `number`
  /// (without a number, the silent ranks), as in "rank 2" or "ranks 1, 2". Empty if there are none.
  std::string missing(std::optional<std::uint64_t> number) const;
  /// "rank 1 is in barrier (operation 3), rank 2 last completed ... and has been silent for 4.2 s".
  std::string whereabouts() const;
  /// The number that error messages use for `rank`.
  int world_rank(int rank) const;

  class State;

 private:
  std::shared_ptr<State> state_;  // shared with the thread
  std::thread thread_;
};

/// Formats a call as "all_reduce[float32, 4] (operation 17)"; without a number, only the call.
std::string describe_numbered(const CallDescription& call, std::optional<std::uint64_t> number);

}  // namespace lockstep::comm
