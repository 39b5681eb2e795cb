#include <lockstep/comm/watchdog.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <map>
#include <mutex>
#include <sstream>
#include <utility>
#include <vector>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <lockstep/core/strings.h>

namespace lockstep {
namespace {

constexpr const char* kAbortKey = "abort";
constexpr const char* kLeftKey = "left";  // counts the ranks that left
constexpr const char* kRunning = "-";     // under kAbortKey, until a reason stands there
constexpr int kSilentLooks = 3;
constexpr std::chrono::milliseconds kUrgentBeat{50};
constexpr std::chrono::milliseconds kUrgency{1500};
constexpr std::chrono::milliseconds kDepartureGrace{1000};
constexpr std::chrono::milliseconds kFarewellLimit{300};
constexpr std::chrono::milliseconds kTimeToTell{600};
constexpr std::chrono::milliseconds kTellPause{20};

std::string to_text(const std::vector<std::uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }
std::vector<std::uint8_t> to_bytes(const std::string& text) { return {text.begin(), text.end()}; }

std::string seconds_text(std::chrono::nanoseconds time) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f s", std::chrono::duration<double>(time).count());
  return text;
}

// What a rank says of itself.
struct Status {
  std::uint64_t beat = 0;
  std::int64_t number = -1;  ///< of the last collective that it called
  bool knows_end = false;    ///< it has read why the group ended
  bool left = false;
  std::string words = "has called nothing yet";

  std::string to_text() const {
    return lockstep::str(beat, ' ', number, ' ', knows_end ? 1 : 0, ' ', left ? 1 : 0, ' ', words);
  }
  static Status from_text(const std::string& text) {
    Status status;
    std::istringstream in(text);
    in >> status.beat >> status.number >> status.knows_end >> status.left;
    in.ignore(1);
    std::getline(in, status.words);
    return status;
  }
};

// Why the group ended, as it stands in the store.
struct End {
  int rank = -1;
  bool late = false;
  std::string reason;

  std::string to_text() const { return lockstep::str(rank, ' ', late ? 1 : 0, ' ', reason); }
  static End from_text(const std::string& text) {
    End end;
    std::istringstream in(text);
    in >> end.rank >> end.late;
    in.ignore(1);
    std::getline(in, end.reason);
    return end;
  }
};

struct Peer {
  Status status;
  bool reported = false;
  Clock::time_point seen = Clock::now();  ///< when its beat was new
  int silent_looks = 0;
  std::optional<Clock::time_point> gone_since;  ///< it left and closed its connection
};

}  // namespace

std::string describe_numbered(const CallDescription& call, std::optional<std::uint64_t> number) {
  return number ? str(describe(call), " (operation ", *number, ")") : describe(call);
}

class Watchdog::State {
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
  void abort(End end);
  void throw_if_ended() const;
  std::string explanation();
  std::string departed(std::uint64_t number) const;
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
  void look(Lock& lock);
  void publish(Lock& lock, bool leaves = false);
  void read(Lock& lock);
  void note(int rank, const std::string& text);
  void judge(Lock& lock);
  void judge_departed(Lock& lock, int rank);
  void end_if_alone();
  void let_peers_read(Lock& lock);
  void say_farewell(Lock& lock);
  bool is_silent(const Peer& peer) const;
  std::string words() const;
  std::string name(int rank) const { return str("rank ", world_rank(rank)); }
  std::string names(const std::vector<int>& ranks) const;
  std::string death() const;
  std::string departure(int rank) const;
  std::string status_key(int rank) const { return lockstep::str("status/", rank); }

  const c10::intrusive_ptr<c10d::Store> store_;
  const int rank_;
  const WatchdogOptions options_;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;  // the thread
  std::condition_variable news_;  // those who wait for it
  bool stop_ = false;
  bool finished_ = false;
  bool in_store_ = false;
  Clock::time_point asked_{};  ///< the store, last
  bool store_gone_ = false;
  bool hurry_ = false;
  bool end_published_ = false;
  bool end_announced_ = false;
  std::optional<End> end_;
  std::atomic<bool> ended_ = false;  // end_ is there: so that waits take no lock
  std::vector<Peer> peers_;
  std::uint64_t beat_ = 0;
  std::uint64_t looks_ = 0;
  Clock::time_point looked_ = Clock::now();
  Clock::time_point urgent_until_{};
  std::map<Ticket, Call> calls_;  // those under way
  std::optional<Call> last_completed_;
  std::int64_t last_number_ = -1;
  Ticket next_ticket_ = 0;
};

// --- The thread ----------------------------------------------------------------------------------

void Watchdog::State::run() {
  Lock lock(mutex_);
  while (!stop_) {
    look(lock);
    if (stop_) break;
    const auto pause = Clock::now() < urgent_until_ ? std::min(kUrgentBeat, options_.beat)
                                                    : options_.beat;
    wake_.wait_for(lock, pause, [&] { return stop_ || hurry_ || (end_ && !end_announced_); });
    hurry_ = false;
  }
  say_farewell(lock);
  finished_ = true;
  news_.notify_all();
}

// `function` without the lock. What it touches stays: stop() waits for it.
template <class Function>
void Watchdog::State::outside(Lock& lock, Function&& function) {
  lock.unlock();
  function();
  lock.lock();
}

// The same for a call of the store, which may not answer: then stop() does not wait. False when the
// store is gone.
template <class Function>
bool Watchdog::State::with_store(Lock& lock, Function&& function) {
  if (store_gone_) return false;
  in_store_ = true;
  asked_ = Clock::now();
  bool gone = false;
  outside(lock, [&] {
    try {
      function();
    } catch (const std::exception&) {
      gone = true;  // the process that served it has ended
    }
  });
  in_store_ = false;
  store_gone_ = gone;
  return !gone;
}

void Watchdog::State::look(Lock& lock) {
  publish(lock);
  if (!stop_) read(lock);
  if (!stop_) judge(lock);
  if (end_ && !end_announced_ && !stop_) {
    end_announced_ = true;
    if (options_.ended) outside(lock, options_.ended);
  }
  ++looks_;
  news_.notify_all();
}

void Watchdog::State::publish(Lock& lock, bool leaves) {
  const std::string status = Status{++beat_, last_number_, end_.has_value(), leaves, words()}.to_text();
  const std::string end = end_ && !end_published_ ? end_->to_text() : "";
  const bool first = looks_ == 0;
  if (with_store(lock, [&] {
        if (first) store_->compareSet(kAbortKey, "", kRunning);
        if (!end.empty()) store_->compareSet(kAbortKey, kRunning, end);
        store_->set(status_key(rank_), to_bytes(status));
      })) {
    end_published_ = end_published_ || !end.empty();
  }
}

void Watchdog::State::read(Lock& lock) {
  std::vector<int> ranks;
  std::vector<std::string> keys;
  bool all_reported = true;
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    if (static_cast<int>(rank) == rank_) continue;
    ranks.push_back(static_cast<int>(rank));
    keys.push_back(status_key(ranks.back()));
    all_reported = all_reported && peers_[rank].reported;
  }
  // The last one: who left because it ended the group wrote that first.
  keys.push_back(kAbortKey);
  std::vector<std::string> texts(keys.size());
  const bool found = with_store(lock, [&] {
    if (all_reported) {
      const auto values = store_->multiGet(keys);
      std::transform(values.begin(), values.end(), texts.begin(), to_text);
      return;
    }
    for (std::size_t i = 0; i < keys.size(); ++i) {
      // Never a get of what may not be there: it would block, and everybody else with it.
      if (store_->check({keys[i]})) texts[i] = to_text(store_->get(keys[i]));
    }
  });
  if (!found) return;
  looked_ = Clock::now();
  if (!texts.back().empty() && texts.back() != kRunning) {
    end_ = End::from_text(texts.back());  // the first reason, which may not be ours
    end_published_ = true;
    ended_ = true;
  }
  for (std::size_t i = 0; i < ranks.size(); ++i) note(ranks[i], texts[i]);
}

void Watchdog::State::note(int rank, const std::string& text) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  if (!text.empty()) {
    Status status = Status::from_text(text);
    const bool is_new = !peer.reported || status.beat != peer.status.beat || status.left;
    peer.reported = true;
    peer.status = std::move(status);
    if (is_new) {
      peer.seen = looked_;
      peer.silent_looks = 0;
      return;
    }
  }
  ++peer.silent_looks;
}

bool Watchdog::State::is_silent(const Peer& peer) const {
  return !peer.status.left && peer.silent_looks >= kSilentLooks &&
         looked_ - peer.seen >= kSilentLooks * options_.beat;
}

// A silent peer may be stopped; one whose connection is closed, too, is dead.
void Watchdog::State::judge(Lock& lock) {
  for (std::size_t i = 0; i < peers_.size() && !end_ && !stop_; ++i) {
    const int rank = static_cast<int>(i);
    if (rank == rank_) continue;
    if (peers_[i].status.left || store_gone_) {
      judge_departed(lock, rank);
    } else if (is_silent(peers_[i])) {
      bool disconnected = false;
      if (options_.disconnected) outside(lock, [&] { disconnected = options_.disconnected(rank); });
      if (disconnected && !end_) {
        const std::string reason = death();
        const std::string mine =
            calls_.empty() ? "" : str(" while ", name(rank_), " was in ", calls_.begin()->second.text());
        end_ = End{rank_, false, reason + mine};
        ended_ = true;
        publish(lock);
        read(lock);
      }
    }
  }
  end_if_alone();
}

void Watchdog::State::judge_departed(Lock& lock, int rank) {
  if (peers_[static_cast<std::size_t>(rank)].gone_since || !options_.disconnected) return;
  bool disconnected = false;
  outside(lock, [&] { disconnected = options_.disconnected(rank); });
  if (disconnected) peers_[static_cast<std::size_t>(rank)].gone_since = Clock::now();
}

// A receive from any rank fails with no connection: it ends when there is none left.
void Watchdog::State::end_if_alone() {
  if (end_ || calls_.empty()) return;
  int last = -1;
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    if (static_cast<int>(rank) == rank_) continue;
    const auto since = peers_[rank].gone_since;
    if (!since || Clock::now() - *since < kDepartureGrace) return;
    last = static_cast<int>(rank);
  }
  end_ = End{rank_, false,
             str(departure(last), " while ", name(rank_), " was in ", calls_.begin()->second.text())};
  ended_ = true;
}

// Whoever serves the store takes it along: not before the others have read why the group ended, or are
// not there to read.
void Watchdog::State::let_peers_read(Lock& lock) {
  for (const Deadline limit(kTimeToTell); !limit.expired() && !store_gone_;) {
    read(lock);
    bool all = true;
    for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
      const Status& status = peers_[rank].status;
      all = all && (static_cast<int>(rank) == rank_ || status.knows_end || status.left);
    }
    if (all) return;
    news_.wait_for(lock, kTellPause);
  }
}

// The last one to leave takes the group's keys along.
void Watchdog::State::say_farewell(Lock& lock) {
  const auto size = static_cast<int>(peers_.size());
  publish(lock, /*leaves=*/true);
  if (end_ && rank_ == options_.store_rank) let_peers_read(lock);
  with_store(lock, [&] {
    if (options_.farewell) options_.farewell();
    if (store_->add(kLeftKey, 1) != size) return;
    for (int rank = 0; rank < size; ++rank) store_->deleteKey(status_key(rank));
    store_->deleteKey(kAbortKey);
    store_->deleteKey(kLeftKey);
  });
}

void Watchdog::State::stop(std::thread& thread) {
  {
    Lock lock(mutex_);
    stop_ = true;
    wake_.notify_all();
    const auto asked_to_stop = Clock::now();
    const auto is_mute = [&] {
      return in_store_ && Clock::now() - std::max(asked_, asked_to_stop) >= kFarewellLimit;
    };
    while (!finished_ && !is_mute()) news_.wait_for(lock, std::chrono::milliseconds(10));
    if (!finished_) {
      thread.detach();
      return;
    }
  }
  thread.join();
}

std::string Watchdog::State::names(const std::vector<int>& ranks) const {
  std::vector<int> world;
  for (const int rank : ranks) world.push_back(world_rank(rank));
  return world.empty() ? "" : str(world.size() == 1 ? "rank " : "ranks ", join(world));
}

// --- The callers' side ---------------------------------------------------------------------------

Watchdog::Ticket Watchdog::State::started(const CallDescription& call,
                                          std::optional<std::uint64_t> number) {
  const Lock lock(mutex_);
  if (number) last_number_ = static_cast<std::int64_t>(*number);
  calls_.emplace(next_ticket_, Call{call, number});
  return next_ticket_++;
}

void Watchdog::State::completed(Ticket ticket) {
  const Lock lock(mutex_);
  const auto found = calls_.find(ticket);
  if (found == calls_.end()) return;
  last_completed_ = std::move(found->second);
  calls_.erase(found);
}

std::string Watchdog::State::words() const {
  if (!calls_.empty()) {
    return str("is in ", calls_.begin()->second.text(),
               calls_.size() == 1 ? "" : str(" and ", calls_.size() - 1, " more"));
  }
  return last_completed_ ? str("last completed ", last_completed_->text()) : "has called nothing yet";
}

void Watchdog::State::abort(End end) {
  const Lock lock(mutex_);
  if (end_) return;
  std::replace(end.reason.begin(), end.reason.end(), '\n', ' ');
  end_ = std::move(end);
  ended_ = true;
  wake_.notify_all();
}

void Watchdog::State::throw_if_ended() const {
  if (!ended_.load(std::memory_order_acquire)) return;
  const Lock lock(mutex_);
  const std::string text =
      end_->rank == rank_ ? end_->reason
                          : str(name(end_->rank), " ended the group: ", end_->reason);
  if (end_->late) throw TimeoutError(text);
  throw CommError(text);
}

std::string Watchdog::State::death() const {
  std::vector<int> dead;
  std::chrono::nanoseconds silence{0};
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    if (static_cast<int>(rank) == rank_ || !is_silent(peers_[rank])) continue;
    dead.push_back(static_cast<int>(rank));
    silence = std::max<std::chrono::nanoseconds>(silence, looked_ - peers_[rank].seen);
  }
  if (dead.empty()) return "";
  return str(names(dead), " died (no sign of life for ", seconds_text(silence), ")");
}

std::string Watchdog::State::departure(int rank) const {
  if (peers_[static_cast<std::size_t>(rank)].status.left) return name(rank) + " left the group";
  if (options_.store_rank < 0 || options_.store_rank == rank_) return "the store is gone";
  const bool server_left = peers_[static_cast<std::size_t>(options_.store_rank)].status.left;
  return name(options_.store_rank) +
         (server_left ? " left the group, and its store with it" : " died (its store is gone)");
}

std::string Watchdog::State::explanation() {
  const Lock lock(mutex_);
  // Once only: each further look comes by itself, at the urgent pace.
  hurry_ = Clock::now() >= urgent_until_;
  urgent_until_ = Clock::now() + kUrgency;
  if (hurry_) wake_.notify_all();
  if (store_gone_) return departure(std::max(options_.store_rank, 0));
  std::string text = death();
  for (std::size_t rank = 0; rank < peers_.size() && text.empty(); ++rank) {
    if (peers_[rank].status.left) text = departure(static_cast<int>(rank));
  }
  return text;
}

std::string Watchdog::State::departed(std::uint64_t number) const {
  const Lock lock(mutex_);
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    const auto since = peers_[rank].gone_since;
    if (!since || Clock::now() - *since < kDepartureGrace) continue;
    // Who called it and left may have done its part. A status that could not be read any more says little.
    const bool called = peers_[rank].status.number >= static_cast<std::int64_t>(number);
    if (!called || !peers_[rank].status.left) return departure(static_cast<int>(rank));
  }
  return "";
}

void Watchdog::State::wait_for_news(std::chrono::milliseconds timeout) {
  Lock lock(mutex_);
  const std::uint64_t seen = looks_;
  news_.wait_for(lock, timeout, [&] { return looks_ != seen || finished_; });
}

std::string Watchdog::State::missing(std::optional<std::uint64_t> number) const {
  const Lock lock(mutex_);
  std::vector<int> ranks;
  // A store that does not answer is served by a process that does not run.
  const bool mute = in_store_ && Clock::now() - asked_ >= kSilentLooks * options_.beat;
  if (mute && options_.store_rank >= 0) return names({options_.store_rank});
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    if (static_cast<int>(rank) == rank_) continue;
    const Peer& peer = peers_[rank];
    const bool behind = number && peer.status.number < static_cast<std::int64_t>(*number);
    if (behind || is_silent(peer)) ranks.push_back(static_cast<int>(rank));
  }
  return names(ranks);
}

std::string Watchdog::State::whereabouts() const {
  const Lock lock(mutex_);
  std::vector<std::string> parts;
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    if (static_cast<int>(rank) == rank_) continue;
    const Peer& peer = peers_[rank];
    const auto silence = Clock::now() - peer.seen;
    parts.push_back(str(name(static_cast<int>(rank)), " ", peer.status.words));
    if (peer.status.left) {
      parts.back() += " and left the group";
    } else if (silence >= (kSilentLooks + 1) * options_.beat) {
      parts.back() += str(" and has been silent for ", seconds_text(silence));
    }
  }
  return join(parts);
}

// --- The handle ----------------------------------------------------------------------------------

Watchdog::Watchdog(c10::intrusive_ptr<c10d::Store> store, int rank, int size, WatchdogOptions options)
    : state_(std::make_shared<State>(std::move(store), rank, size, std::move(options))),
      thread_([state = state_] { state->run(); }) {}

Watchdog::~Watchdog() { state_->stop(thread_); }

Watchdog::Ticket Watchdog::started(const CallDescription& call, std::optional<std::uint64_t> number) {
  return state_->started(call, number);
}
void Watchdog::completed(Ticket ticket) { state_->completed(ticket); }
void Watchdog::abort(const std::string& reason, bool late) {
  state_->abort({state_->rank(), late, reason});
}
void Watchdog::throw_if_ended() const { state_->throw_if_ended(); }
std::string Watchdog::explanation() { return state_->explanation(); }
std::string Watchdog::departed(std::uint64_t number) const { return state_->departed(number); }
void Watchdog::wait_for_news(std::chrono::milliseconds timeout) { state_->wait_for_news(timeout); }
std::string Watchdog::missing(std::optional<std::uint64_t> number) const {
  return state_->missing(number);
}
int Watchdog::world_rank(int rank) const { return state_->world_rank(rank); }
std::string Watchdog::whereabouts() const { return state_->whereabouts(); }

}  // namespace lockstep
