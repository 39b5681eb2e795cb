// What a rank's group without shared memory knows of its peers: whether they live, what they do,
// and whether somebody ended the group. It also ends a group whose ranks wait for each other
// because they called different things as one collective: it sees what each is in.
//
// Every rank has one thread that, four times a second, writes its status into the store and reads
// those of the others, over a connection of its own. Waits look at what it found and never ask the
// store themselves: a store whose host is stopped does not answer.
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

namespace lockstep {

struct WatchdogOptions {
  std::chrono::milliseconds beat{250};
  /// The ranks of the members in the first group, by which messages name them. Empty: this is it.
  std::vector<int> world_ranks{};
  /// Which rank of this group serves the store, and went when the store is gone. -1: none.
  int store_rank = 0;
  /// Asked on the watchdog's thread about a peer that is silent or has left: is the connection to
  /// it closed? That tells a dead process from a stopped one.
  std::function<bool(int rank)> disconnected{};
  /// How long a peer may be silent before its host is asked for an answer; without one the peer is
  /// dead or cut off, and the group ends. Zero: no host is asked.
  std::chrono::milliseconds host_timeout{0};
  /// How long a peer may be silent where there is no connection whose state could be queried: then
  /// it counts as dead, and the group ends. Zero: silence alone ends nothing.
  std::chrono::milliseconds silence_limit{0};
  /// This host's address, at which peers check that the host answers. If empty, peers cannot check.
  std::string own_address{};
  /// Called once, on the watchdog's thread, when the group has ended, unless leave() was called
  /// before: wakes what waits.
  std::function<void()> ended{};
  /// Called on the watchdog's thread when this rank leaves, the store being alive: deletes its
  /// keys.
  std::function<void()> farewell{};
  /// Called on the watchdog's thread after each look.
  std::function<void()> looked{};
};

/// Safe to use from several threads. Nothing here but wait_for_news() blocks.
class Watchdog {
 public:
  using Ticket = std::uint64_t;

  /// `store` holds nothing but this group's. After its first look the watchdog clones it, so that
  /// what blocks in it holds up no status; one that cannot be cloned is used itself. (Not before:
  /// a connection takes tens of milliseconds, and many groups live shorter.)
  Watchdog(c10::intrusive_ptr<c10d::Store> store, int rank, int size, WatchdogOptions options);
  /// Leaves as leave() does, unless leave() was called.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Tells the peers that this rank leaves. Waits for the thread, unless that waits for a store
  /// that does not answer: then the thread ends by itself when the store does. No function of the
  /// options is called any more. By one thread.
  void leave();

  /// This rank's calls, for its status. `number` of collectives.
  Ticket started(const CallDescription& call, std::optional<std::uint64_t> number);
  void completed(Ticket ticket);
  /// A collective that was over as soon as it was called.
  void note(const CallDescription& call, std::uint64_t number);

  /// Ends the group, here at once and at the peers when they look. The first reason wins. `late`:
  /// as TimeoutError.
  void abort(const std::string& reason, bool late = false);
  /// Throws the reason, as CommError or TimeoutError, once the group has ended.
  void throw_if_ended() const;

  /// Why an operation may have failed: "rank 2 died (no sign of life for 0.9 s)", "rank 1 left the
  /// group"; of a message to or from `peer` first what is known of that one. With the store gone
  /// nobody tells why a rank is missing: "rank 0 died or left the group (its store is gone)", "rank
  /// 2 died or left the group (its connection is closed, and the store, which would know, is
  /// gone)". Empty where nothing is known. Asking makes the next looks more frequent.
  std::string explanation(std::optional<int> peer = std::nullopt);
  /// What the store answered last when it failed: "rank 1 cannot use the store: ..."; empty where
  /// it works.
  std::string store_trouble() const;
  /// As missing(), for collective `number` that has not failed: names a rank whose connection has
  /// been closed for a second and that has not called it.
  std::string departed(std::uint64_t number) const;
  /// As departed(), for a message to or from `peer`: that rank has been gone for a second.
  std::string left(int peer) const;
  /// As departed(), for the rank that serves the store, where there is no connection whose state
  /// could be queried: says that the store has been gone, or has not answered, for `limit`. An
  /// operation that needs that rank will not end. Empty otherwise.
  std::string lost_store(std::chrono::milliseconds limit) const;
  /// Looks at once, and more frequently for a moment.
  void hurry();
  /// Until the watchdog has looked again, at most `timeout`.
  void wait_for_news(std::chrono::milliseconds timeout);

  /// For an operation that reached its deadline: "rank 2" or "ranks 1, 2", those that have not
  /// called collective `number` (none: those that are silent); empty where all did.
  std::string missing(std::optional<std::uint64_t> number) const;
  /// "rank 1 is in barrier (operation 3), rank 2 last completed ... and has been silent for 4.2 s".
  std::string whereabouts() const;
  /// As messages name it.
  int world_rank(int rank) const;

  class State;

 private:
  std::shared_ptr<State> state_;  // the thread's too
  std::thread thread_;
};

/// "all_reduce[float32, 4] (operation 17)".
std::string describe_numbered(const CallDescription& call, std::optional<std::uint64_t> number);

}  // namespace lockstep
