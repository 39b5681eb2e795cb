// The watchdog's thread: it writes this rank's status, reads the peers' and detects failures.
#include <lockstep/comm/diagnostics/watchdog_state.h>

#include <algorithm>
#include <system_error>
#include <thread>

#include <c10/util/Exception.h>

#include <lockstep/comm/waiting/store_waits.h>
#include <lockstep/core/error.h>
#include <lockstep/core/log.h>

namespace lockstep::comm {
namespace {

using watching::kDepartureGrace;
using watching::kSilentLooks;

constexpr const char* kAbortKey = "abort";
constexpr const char* kLeftKey = "left";  // counts the ranks that left
constexpr const char* kNoReason = "-";    // the value of kAbortKey until the group ends
constexpr std::chrono::milliseconds kUrgentBeat{50};
constexpr std::chrono::milliseconds kFarewellLimit{300};
constexpr std::chrono::milliseconds kAnnouncementLimit{600};
constexpr std::chrono::milliseconds kTellPause{20};
// Long enough for one retransmission, which TCP sends after a second.
constexpr std::chrono::milliseconds kHostAnswerTime{1500};

// Whether the process that served the store has ended or missed the deadline. Any other error may
// be temporary.
bool is_lost_connection(const std::exception& error) {
  return dynamic_cast<const c10::DistNetworkError*>(&error) != nullptr ||
         dynamic_cast<const TimeoutError*>(&error) != nullptr ||
         dynamic_cast<const std::system_error*>(&error) != nullptr;
}

bool is_cut_off_store(const std::exception& error) {
  const auto* const lost = dynamic_cast<const std::system_error*>(&error);
  return lost != nullptr &&
         (lost->code() == std::errc::timed_out || lost->code() == std::errc::host_unreachable ||
          lost->code() == std::errc::network_unreachable);
}

std::unique_ptr<Doorbell> hang_doorbell(const std::string& address) {
  if (address.empty()) return nullptr;
  try {
    return std::make_unique<Doorbell>(address);
  } catch (const CommError& error) {
    log_info("peers cannot tell a stopped rank from a host that is cut off: ", error.what());
    return nullptr;
  }
}

}  // namespace

void Watchdog::State::run() {
  if (options_.host_timeout.count() > 0) doorbell_ = hang_doorbell(options_.own_address);
  Lock lock(mutex_);
  while (!stop_) {
    if (looks_ == 1) connect_anew(lock);
    if (stop_) break;
    look(lock);
    if (stop_) break;
    const auto pause =
        Clock::now() < urgent_until_ ? std::min(kUrgentBeat, options_.beat) : options_.beat;
    wake_.wait_for(lock, pause, [&] { return stop_ || hurry_ || (end_ && !end_announced_); });
    hurry_ = false;
  }
  say_farewell(lock);
  finished_ = true;
  news_.notify_all();
}

// Runs `function` without the lock. The objects it uses stay alive because stop() waits for it.
template <class Function>
void Watchdog::State::outside(Lock& lock, Function&& function) {
  lock.unlock();
  function();
  lock.lock();
}

// Like outside(), for a call to the store. stop() does not wait for it, because the store may never
// answer. Returns false if the call failed.
template <class Function>
bool Watchdog::State::with_store(Lock& lock, Function&& function) {
  if (store_gone_) return false;
  in_store_ = true;
  asked_ = Clock::now();
  bool gone = false;
  bool cut_off = false;
  std::string error;
  outside(lock, [&] {
    try {
      function();
    } catch (const std::exception& caught) {
      error = first_line(caught);
      gone = is_lost_connection(caught);
      cut_off = is_cut_off_store(caught);
    }
  });
  in_store_ = false;
  store_gone_ = gone;
  if (gone) store_gone_since_ = Clock::now();
  store_cut_off_ = cut_off;
  store_error_ = error;
  return error.empty();
}

void Watchdog::State::connect_anew(Lock& lock) {
  c10::intrusive_ptr<c10d::Store> own;
  with_store(lock, [&] {
    store_->check({kAbortKey});  // throws if the store is gone, for which clone() needs minutes
    try {
      own = store_->clone();
    } catch (const std::exception&) {
      // This store cannot be cloned.
    }
  });
  if (own) store_ = std::move(own);
}

void Watchdog::State::look(Lock& lock) {
  publish(lock);
  if (!stop_) read(lock);
  if (!stop_) judge(lock);
  if (end_ && !end_announced_ && !stop_) {
    end_announced_ = true;
    if (options_.ended) outside(lock, options_.ended);
  }
  if (options_.looked && !stop_) outside(lock, options_.looked);
  ++looks_;
  news_.notify_all();
}

void Watchdog::State::publish(Lock& lock, bool leaves) {
  Status own{++beat_, last_number_, end_.has_value(), leaves, -1, "", words()};
  const auto oldest = std::find_if(calls_.begin(), calls_.end(),
                                   [](const auto& each) { return each.second.number.has_value(); });
  if (oldest != calls_.end()) {
    own.oldest = static_cast<std::int64_t>(*oldest->second.number);
    own.oldest_call = describe(oldest->second.description);
  }
  if (doorbell_) own.doorbell = doorbell_->place();
  const std::string status = own.to_text();
  const std::string end = end_ && !end_published_ ? end_->to_text() : "";
  const bool first = looks_ == 0;
  if (with_store(lock, [&] {
        if (first) store_->compareSet(kAbortKey, "", kNoReason);
        if (!end.empty()) store_->compareSet(kAbortKey, kNoReason, end);
        store_->set(status_key(rank_), store_bytes(status));
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
  // This key is read last: a rank that left because it ended the group wrote the reason first.
  keys.push_back(kAbortKey);
  std::vector<std::string> texts(keys.size());
  const bool found = with_store(lock, [&] {
    if (all_reported) {
      const auto values = store_->multiGet(keys);
      std::transform(values.begin(), values.end(), texts.begin(), store_text);
      return;
    }
    for (std::size_t i = 0; i < keys.size(); ++i) {
      // Do not get a key that may not exist: the call would block, and with it all other users of
      // the store.
      if (store_->check({keys[i]})) texts[i] = store_text(store_->get(keys[i]));
    }
  });
  if (!found) return;
  looked_ = Clock::now();
  if (!texts.back().empty() && texts.back() != kNoReason) {
    const auto told = End::from_text(texts.back(), static_cast<int>(peers_.size()));
    // The store holds the reason that was written first; another rank may have written it.
    end_ = told.value_or(End{rank_, false,
                             "the group ended, and what its store gives as the reason is none: "
                             "another program seems to have written into the store"});
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

// A silent peer may only be stopped. It counts as dead if its connection is closed as well, or if
// its host does not answer.
void Watchdog::State::judge(Lock& lock) {
  for (std::size_t i = 0; i < peers_.size() && !end_ && !stop_; ++i) {
    const int rank = static_cast<int>(i);
    if (rank == rank_) continue;
    if (peers_[i].status.left || store_gone_) {
      judge_departed(lock, rank);
    } else if (is_silent(peers_[i])) {
      judge_silent(lock, rank);
    }
    if (!end_ && !stop_ && is_cut_off(lock, rank) && !end_) {
      const auto silence = std::chrono::duration<double>(Clock::now() - peers_[i].seen).count();
      end_without(lock,
                  str(name(rank), " died or is cut off (no sign of life for ",
                      static_cast<int>(silence), " s, and ",
                      peers_[i].reported ? "its host" : "the store's host", " does not answer)"));
    }
  }
  compare_calls(lock);
  end_if_alone();
}

// If there are no connections to query, only elapsed time distinguishes dead peers from stopped
// ones.
void Watchdog::State::judge_silent(Lock& lock, int rank) {
  if (options_.disconnected) {
    bool disconnected = false;
    outside(lock, [&] { disconnected = options_.disconnected(rank); });
    if (disconnected && !end_) end_without(lock, death());
    return;
  }
  const auto silence = looked_ - peers_[static_cast<std::size_t>(rank)].seen;
  if (options_.silence_limit.count() == 0 || silence < options_.silence_limit) return;
  end_without(lock, str(name(rank), " died or is stopped (no sign of life for ",
                        std::chrono::duration_cast<std::chrono::seconds>(silence).count(), " s)"));
}

void Watchdog::State::end_without(Lock& lock, const std::string& reason) {
  const std::string mine =
      calls_.empty() ? "" : str(" while ", name(rank_), " was in ", calls_.begin()->second.text());
  end_ = End{rank_, false, reason + mine};
  ended_ = true;
  publish(lock);
  read(lock);
}

// A few ranks probe on behalf of all. If every rank of a large group probed, one of them would
// eventually lose both of its packets and end the group although the host is reachable.
bool Watchdog::State::asks_for_all(int rank) const {
  constexpr int kAskers = 4;
  const int size = static_cast<int>(peers_.size());
  int asking = 0;
  for (int next = (rank + 1) % size; next != rank_ && asking < kAskers; next = (next + 1) % size) {
    const Peer& peer = peers_[static_cast<std::size_t>(next)];
    if (!peer.status.left && !is_silent(peer)) ++asking;
  }
  return asking < kAskers;
}

// Probes the host of a peer that has been silent for so long that it may be gone. A host that
// answers is probed again after the same time. If this rank is cut off from the store, it probes at
// once, because it can no longer learn the addresses of the peers' hosts.
bool Watchdog::State::is_cut_off(Lock& lock, int rank) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  const auto now = Clock::now();
  const auto limit = options_.host_timeout;
  if (limit.count() == 0 || peer.status.left || peer.gone_since) return false;
  if (!peer.reported) return store_cut_off_;
  if (peer.status.doorbell.empty() || now - peer.asked < limit) return false;
  if (!store_cut_off_ && (store_gone_ || now - peer.seen < limit || !asks_for_all(rank)))
    return false;
  peer.asked = now;
  const std::string place = peer.status.doorbell;
  bool answers = true;
  outside(lock, [&] { answers = host_answers(place, kHostAnswerTime); });
  return !answers;
}

// Ends the group if a peer waits in a collective while this rank made a different call under the
// same number.
void Watchdog::State::compare_calls(Lock& lock) {
  for (std::size_t i = 0; i < peers_.size() && !end_ && !stop_; ++i) {
    const Status& status = peers_[i].status;
    const int rank = static_cast<int>(i);
    if (rank == rank_ || status.oldest < 0) continue;
    const auto own = std::find_if(recent_.begin(), recent_.end(), [&](const Call& call) {
      return static_cast<std::int64_t>(*call.number) == status.oldest;
    });
    if (own == recent_.end()) continue;
    const std::string mine = describe(own->description);
    if (mine == status.oldest_call) continue;
    const bool first = rank < rank_;
    end_ = End{rank_, false,
               str("the ranks call different operations: ", name(first ? rank_ : rank), " called ",
                   first ? mine : status.oldest_call, " as number ", status.oldest, ", ",
                   name(first ? rank : rank_), " called ", first ? status.oldest_call : mine)};
    ended_ = true;
    publish(lock);
    read(lock);
  }
}

void Watchdog::State::judge_departed(Lock& lock, int rank) {
  if (peers_[static_cast<std::size_t>(rank)].gone_since) return;
  bool disconnected = peers_[static_cast<std::size_t>(rank)].status.left;
  if (options_.disconnected) outside(lock, [&] { disconnected = options_.disconnected(rank); });
  if (disconnected) peers_[static_cast<std::size_t>(rank)].gone_since = Clock::now();
}

// The failure of one connection does not fail a receive from any rank; it ends when no connection
// is left. Other operations under way fail on their own, or their messages arrived before the peers
// left.
void Watchdog::State::end_if_alone() {
  const auto receive = std::find_if(calls_.begin(), calls_.end(), [](const auto& each) {
    const CallDescription& call = each.second.description;
    return call.kind == CallKind::kRecv && call.root < 0;
  });
  if (end_ || receive == calls_.end()) return;
  int last = -1;
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    if (static_cast<int>(rank) == rank_) continue;
    const auto since = peers_[rank].gone_since;
    if (!since || Clock::now() - *since < kDepartureGrace) return;
    last = static_cast<int>(rank);
  }
  if (last < 0) return;
  end_ = End{rank_, false,
             str(departure(last), " while ", name(rank_), " was in ", receive->second.text())};
  ended_ = true;
}

// The store ends with the rank that serves it. That rank waits until the others have read why the
// group ended, or are gone.
void Watchdog::State::let_peers_read(Lock& lock) {
  for (const Deadline limit(kAnnouncementLimit); !limit.expired() && !store_gone_;) {
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

// The last rank to leave deletes the group's keys.
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

}  // namespace lockstep::comm
