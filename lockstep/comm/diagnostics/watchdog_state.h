// The state that a Watchdog shares with its thread. Internal to watchdog.cpp and
// watchdog_thread.cpp.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <utility>
#include <vector>

#include <lockstep/comm/diagnostics/doorbell.h>
#include <lockstep/comm/diagnostics/watchdog.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/strings.h>

namespace lockstep::comm {
namespace watching {

inline constexpr int kSilentLooks = 3;
inline constexpr std::chrono::milliseconds kDepartureGrace{1000};
/// More than the number of calls by which a rank can be ahead of another rank.
inline constexpr std::size_t kRecentCalls = 256;

// The status that a rank publishes.
struct Status {
  std::uint64_t beat = 0;
  std::int64_t number = -1;  ///< number of the last collective that it called
  bool knows_end = false;    ///< whether it has read why the group ended
  bool left = false;
  std::int64_t oldest = -1;  ///< number of the oldest collective that is under way
  std::string oldest_call;   ///< that collective's call
  std::string words = "has called nothing yet";
  std::string doorbell;  ///< address at which its host can be probed (doorbell.h); may be empty

  std::string to_text() const {
    return lockstep::str(beat, ' ', number, ' ', knows_end ? 1 : 0, ' ', left ? 1 : 0, ' ', oldest,
                         ' ', words, '\n', oldest_call, '\n', doorbell);
  }
  static Status from_text(const std::string& text) {
    Status status;
    std::istringstream in(text);
    in >> status.beat >> status.number >> status.knows_end >> status.left >> status.oldest;
    in.ignore(1);
    std::getline(in, status.words);
    std::getline(in, status.oldest_call);
    std::getline(in, status.doorbell);
    return status;
  }
};

// The reason why the group ended, as written in the store.
struct End {
  int rank = -1;
  bool late = false;
  std::string reason;

  std::string to_text() const { return lockstep::str(rank, ' ', late ? 1 : 0, ' ', reason); }
  /// Empty if `text` was not written by a rank of a group of `size`.
  static std::optional<End> from_text(const std::string& text, int size) {
    End end;
    std::istringstream in(text);
    in >> end.rank >> end.late;
    in.ignore(1);
    std::getline(in, end.reason);
    if (!in || end.reason.empty() || end.rank < 0 || end.rank >= size) return std::nullopt;
    return end;
  }
};

struct Peer {
  Status status;
  bool reported = false;
  Clock::time_point seen = Clock::now();  ///< when its beat last changed
  int silent_looks = 0;
  Clock::time_point asked{};  ///< when its host was last probed
  /// Set once its connection is closed and, in addition, it has left or the store is gone.
  std::optional<Clock::time_point> gone_since;
};

}  // namespace watching

class Watchdog::State {
  using End = watching::End;
  using Peer = watching::Peer;
  using Status = watching::Status;

 public:
  State(c10::intrusive_ptr<c10d::Store> store, int rank, int size, WatchdogOptions options)
      : store_(std::move(store)),
        rank_(rank),
        options_(std::move(options)),
        peers_(static_cast<std::size_t>(size)) {}

  void run();
  void stop(std::thread& thread);

  Ticket started(const CallDescription& call, std::optional<std::uint64_t> number);
  void completed(Ticket ticket);
  void note(const CallDescription& call, std::uint64_t number);
  void abort(End end);
  void throw_if_ended() const;
  std::string explanation(std::optional<int> peer);
  std::string store_trouble() const;
  std::string departed(std::uint64_t number) const;
  std::string left(int peer) const;
  std::string lost_store(std::chrono::milliseconds limit) const;
  void hurry();
  void wait_for_news(std::chrono::milliseconds timeout);
  std::string missing(std::optional<std::uint64_t> number) const;
  std::string whereabouts() const;
  int rank() const { return rank_; }
  int world_rank(int rank) const {
    return options_.world_ranks.empty() ? rank
                                        : options_.world_ranks[static_cast<std::size_t>(rank)];
  }

 private:
  struct Call {
    CallDescription description;
    std::optional<std::uint64_t> number;
    std::string text() const { return describe_numbered(description, number); }
  };
  using Lock = std::unique_lock<std::mutex>;

  template <class Function>
  bool with_store(Lock& lock, Function&& function);
  template <class Function>
  void outside(Lock& lock, Function&& function);
  void connect_anew(Lock& lock);
  void look(Lock& lock);
  void publish(Lock& lock, bool leaves = false);
  void read(Lock& lock);
  void note(int rank, const std::string& text);
  void judge(Lock& lock);
  void judge_silent(Lock& lock, int rank);
  void judge_departed(Lock& lock, int rank);
  bool is_cut_off(Lock& lock, int rank);
  bool asks_for_all(int rank) const;
  void end_without(Lock& lock, const std::string& reason);
  void compare_calls(Lock& lock);
  void hurry_locked();
  void remember(Call call);
  void end_if_alone();
  void let_peers_read(Lock& lock);
  void say_farewell(Lock& lock);
  bool is_silent(const Peer& peer) const;
  std::string words() const;
  std::string name(int rank) const { return str("rank ", world_rank(rank)); }
  std::string names(const std::vector<int>& ranks) const;
  std::string death() const;
  std::string departure(int rank) const;
  std::string absence() const;
  bool is_absent(int rank) const {
    return peers_[static_cast<std::size_t>(rank)].gone_since.has_value();
  }
  std::string status_key(int rank) const { return lockstep::str("status/", rank); }

  c10::intrusive_ptr<c10d::Store> store_;  // used by the thread only
  std::unique_ptr<Doorbell> doorbell_;     // used by the thread only; may be null
  const int rank_;
  const WatchdogOptions options_;

  mutable std::mutex mutex_;      // guards the members below
  std::condition_variable wake_;  // wakes the thread
  std::condition_variable news_;  // wakes wait_for_news()
  bool stop_ = false;
  bool finished_ = false;
  bool in_store_ = false;
  Clock::time_point asked_{};  ///< when the store was last queried
  bool store_gone_ = false;    ///< whether the connection to the store is lost
  Clock::time_point store_gone_since_{};
  bool store_cut_off_ = false;  ///< whether it is lost because the store's host does not answer
  std::string store_error_;     ///< error of the last call, if it failed
  bool hurry_ = false;
  bool end_published_ = false;
  bool end_announced_ = false;
  std::optional<End> end_;
  std::atomic<bool> ended_ = false;  // whether end_ is set; waits read it without a lock
  std::vector<Peer> peers_;
  std::uint64_t beat_ = 0;
  std::uint64_t looks_ = 0;
  Clock::time_point looked_ = Clock::now();
  Clock::time_point urgent_until_{};
  std::map<Ticket, Call> calls_;  // calls under way
  std::deque<Call> recent_;       // the last collectives that were called
  std::optional<Call> last_completed_;
  std::int64_t last_number_ = -1;
  Ticket next_ticket_ = 0;
};

}  // namespace lockstep::comm
