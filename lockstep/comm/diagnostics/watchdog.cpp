#include <lockstep/comm/diagnostics/watchdog.h>

#include <cstdio>
#include <utility>

#include <lockstep/comm/call/outcome.h>
#include <lockstep/comm/diagnostics/watchdog_state.h>
#include <lockstep/core/error.h>

namespace lockstep::comm {
namespace {

using watching::kDepartureGrace;
using watching::kSilentLooks;

constexpr std::chrono::milliseconds kUrgency{1500};

std::string seconds_text(std::chrono::nanoseconds time) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f s", std::chrono::duration<double>(time).count());
  return text;
}

}  // namespace

std::string describe_numbered(const CallDescription& call, std::optional<std::uint64_t> number) {
  return number ? str(describe(call), " (operation ", *number, ")") : describe(call);
}

Watchdog::Ticket Watchdog::State::started(const CallDescription& call,
                                          std::optional<std::uint64_t> number) {
  const Lock lock(mutex_);
  if (number) remember({call, number});
  calls_.emplace(next_ticket_, Call{call, number});
  return next_ticket_++;
}

void Watchdog::State::note(const CallDescription& call, std::uint64_t number) {
  const Lock lock(mutex_);
  remember({call, number});
  last_completed_ = recent_.back();
}

void Watchdog::State::remember(Call call) {
  last_number_ = static_cast<std::int64_t>(*call.number);
  recent_.push_back(std::move(call));
  if (recent_.size() > watching::kRecentCalls) recent_.pop_front();
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
  return last_completed_ ? str("last completed ", last_completed_->text())
                         : "has called nothing yet";
}

void Watchdog::State::abort(End end) {
  const Lock lock(mutex_);
  if (end_) return;
  std::replace(end.reason.begin(), end.reason.end(), '\n', ' ');
  end.reason = abort_reason(end.reason);
  end_ = std::move(end);
  ended_ = true;
  wake_.notify_all();
}

void Watchdog::State::throw_if_ended() const {
  if (!ended_.load(std::memory_order_acquire)) return;
  const Lock lock(mutex_);
  const std::string text = end_->rank == rank_
                               ? end_->reason
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

// Describes a rank that has left, or whose connection is closed while the store is gone.
std::string Watchdog::State::departure(int rank) const {
  if (peers_[static_cast<std::size_t>(rank)].status.left) return name(rank) + " left the group";
  if (rank == options_.store_rank) {
    return name(rank) + " died or left the group (its store is gone)";
  }
  return name(rank) +
         " died or left the group (its connection is closed, and the store, which would know, is "
         "gone)";
}

// Names the ranks that have been missing since the store was lost, beginning with the rank that
// serves it, because the others may have left for that reason.
std::string Watchdog::State::absence() const {
  const int host = options_.store_rank;
  const bool host_is_peer = host >= 0 && host != rank_;
  // Without `disconnected` (NCCL), connections cannot be queried.
  const bool host_went = host_is_peer && (is_absent(host) || !options_.disconnected) &&
                         !peers_[static_cast<std::size_t>(host)].status.left;
  std::vector<int> others;
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    const int each = static_cast<int>(rank);
    if (each != host && is_absent(each) && !peers_[rank].status.left) others.push_back(each);
  }
  if (host_went) {
    return departure(host) +
           (others.empty() ? "" : str("; the connections to ", names(others), " are closed, too"));
  }
  if (others.size() == 1) return departure(others[0]);
  if (others.empty()) return "";
  return names(others) +
         " died or left the group (their connections are closed, and the store, which would know, "
         "is gone)";
}

std::string Watchdog::State::store_trouble() const {
  const Lock lock(mutex_);
  if (store_error_.empty()) return "";
  return str(name(rank_),
             store_gone_ ? " lost the store: " : " cannot use the store: ", store_error_);
}

std::string Watchdog::State::explanation(std::optional<int> peer) {
  const Lock lock(mutex_);
  hurry_locked();
  std::string text = death();  // detected while the store was available
  if (text.empty() && peer && is_absent(*peer)) return departure(*peer);
  // A message does not fail because of a rank that takes no part in it.
  const bool can_ask = static_cast<bool>(options_.disconnected);
  if (text.empty() && store_gone_ && !(peer && can_ask)) text = absence();
  for (std::size_t rank = 0; rank < peers_.size() && text.empty(); ++rank) {
    if (peer && can_ask && static_cast<int>(rank) != *peer) continue;
    if (peers_[rank].status.left) text = departure(static_cast<int>(rank));
  }
  return text;
}

std::string Watchdog::State::departed(std::uint64_t number) const {
  const Lock lock(mutex_);
  bool any = false;
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    const auto since = peers_[rank].gone_since;
    if (!since || Clock::now() - *since < kDepartureGrace) continue;
    const bool called = peers_[rank].status.number >= static_cast<std::int64_t>(number);
    // A rank that called it before it left may have done its part.
    if (peers_[rank].status.left && !called) return departure(static_cast<int>(rank));
    // A rank that did not report that it left may have died; absence() describes it.
    any = any || !peers_[rank].status.left;
  }
  return any ? absence() : "";
}

std::string Watchdog::State::left(int peer) const {
  const Lock lock(mutex_);
  const Peer& gone = peers_[static_cast<std::size_t>(peer)];
  const bool is_over = gone.gone_since && Clock::now() - *gone.gone_since >= kDepartureGrace;
  return is_over && gone.status.left ? departure(peer) : "";
}

std::string Watchdog::State::lost_store(std::chrono::milliseconds limit) const {
  const Lock lock(mutex_);
  const int host = options_.store_rank;
  if (host < 0 || host == rank_ || options_.disconnected) return "";
  const auto now = Clock::now();
  if (store_gone_ && now - store_gone_since_ >= limit) return departure(host);
  if (!in_store_ || now - asked_ < limit) return "";
  return str(name(host), " died or is stopped (its store has not answered for ",
             seconds_text(now - asked_), ")");
}

void Watchdog::State::hurry() {
  const Lock lock(mutex_);
  hurry_locked();
}

// Wakes the thread only at the beginning of an urgent period, because it then looks at the urgent
// pace.
void Watchdog::State::hurry_locked() {
  if (Clock::now() >= urgent_until_) hurry_ = true;
  urgent_until_ = Clock::now() + kUrgency;
  if (hurry_) wake_.notify_all();
}

void Watchdog::State::wait_for_news(std::chrono::milliseconds timeout) {
  Lock lock(mutex_);
  const std::uint64_t seen = looks_;
  news_.wait_for(lock, timeout, [&] { return looks_ != seen || finished_; });
}

std::string Watchdog::State::missing(std::optional<std::uint64_t> number) const {
  const Lock lock(mutex_);
  std::vector<int> ranks;
  // If the store does not answer, the process that serves it is not running.
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

std::string Watchdog::State::names(const std::vector<int>& ranks) const {
  std::vector<int> world;
  for (const int rank : ranks) world.push_back(world_rank(rank));
  return world.empty() ? "" : str(world.size() == 1 ? "rank " : "ranks ", join(world));
}

// --- The handle ----------------------------------------------------------------------------------

Watchdog::Watchdog(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                   WatchdogOptions options)
    : state_(std::make_shared<State>(std::move(store), rank, size, std::move(options))),
      thread_([state = state_] { state->run(); }) {}

Watchdog::~Watchdog() { leave(); }

void Watchdog::leave() {
  if (thread_.joinable()) state_->stop(thread_);
}

Watchdog::Ticket Watchdog::started(const CallDescription& call,
                                   std::optional<std::uint64_t> number) {
  return state_->started(call, number);
}
void Watchdog::completed(Ticket ticket) { state_->completed(ticket); }
void Watchdog::note(const CallDescription& call, std::uint64_t number) {
  state_->note(call, number);
}
void Watchdog::abort(const std::string& reason, bool late) {
  state_->abort({state_->rank(), late, reason});
}
void Watchdog::throw_if_ended() const { state_->throw_if_ended(); }
std::string Watchdog::explanation(std::optional<int> peer) { return state_->explanation(peer); }
std::string Watchdog::store_trouble() const { return state_->store_trouble(); }
std::string Watchdog::departed(std::uint64_t number) const { return state_->departed(number); }
std::string Watchdog::left(int peer) const { return state_->left(peer); }
std::string Watchdog::lost_store(std::chrono::milliseconds limit) const {
  return state_->lost_store(limit);
}
void Watchdog::hurry() { state_->hurry(); }
void Watchdog::wait_for_news(std::chrono::milliseconds timeout) { state_->wait_for_news(timeout); }
std::string Watchdog::missing(std::optional<std::uint64_t> number) const {
  return state_->missing(number);
}
int Watchdog::world_rank(int rank) const { return state_->world_rank(rank); }
std::string Watchdog::whereabouts() const { return state_->whereabouts(); }

}  // namespace lockstep::comm
