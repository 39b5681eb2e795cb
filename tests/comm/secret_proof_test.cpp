// Judges the proof of the secret: explores everything that an attacker who controls the store, but
// does not know the secret, can show to the ranks, in every order.
#include <lockstep/comm/rendezvous/secret.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <lockstep/comm/rendezvous/forwarding_store.h>
#include <lockstep/comm/rendezvous/rendezvous.h>
#include <lockstep/comm/waiting/store_waits.h>
#include <lockstep/core/error.h>
#include <tests/support/ranks.h>
#include <tests/support/scoped_environment.h>

namespace lockstep::comm {
namespace {

using std::chrono::milliseconds;
using testing_support::run_threads;

constexpr const char* kJobSecret = "a secret of more than sixteen characters";
constexpr const char* kOtherSecret = "another secret of more than sixteen characters";

using Texts = std::vector<std::string>;

std::vector<int> names_of(std::size_t size) {
  std::vector<int> names;
  for (std::size_t rank = 0; rank < size; ++rank) names.push_back(static_cast<int>(rank));
  return names;
}

// The protocol without the check that the roll call holds the rank's own greeting. The explorer
// must find its hole.
class CarelessProof {
 public:
  CarelessProof(const std::string& secret, int rank, int world_rank)
      : secret_(secret), rank_(static_cast<std::size_t>(rank)), honest_(secret, rank, world_rank) {}

  const std::string& greeting() const { return honest_.greeting(); }
  std::optional<std::string> proof(const Texts& greetings, const std::vector<int>& /*names*/) {
    transcript_.clear();
    for (const auto& text : greetings) transcript_ += lockstep::str(text.size(), ':', text);
    return proof_of(rank_);
  }
  std::string key(const Texts& proofs) const {
    for (std::size_t rank = 0; rank < proofs.size(); ++rank) {
      if (proofs[rank] != proof_of(rank)) throw CommError("different");
    }
    return hmac_sha256(secret_, "lockstep meeting " + transcript_);
  }

 private:
  std::string proof_of(std::size_t rank) const {
    return hmac_sha256(secret_, lockstep::str("lockstep proof ", rank, ' ', transcript_));
  }
  const std::string secret_;
  const std::size_t rank_;
  const SecretProof honest_;
  std::string transcript_;
};

// All lists of `size` texts from `pool`.
std::vector<Texts> all_lists(const Texts& pool, std::size_t size) {
  std::vector<Texts> lists{{}};
  for (std::size_t place = 0; place < size; ++place) {
    std::vector<Texts> longer;
    for (const Texts& list : lists) {
      for (const std::string& text : pool) {
        longer.push_back(list);
        longer.back().push_back(text);
      }
    }
    lists = std::move(longer);
  }
  return lists;
}

// Explores meetings in which the attacker delivers all messages. An earlier meeting with the same
// secret is over, and all its messages are recorded. Greetings are written before anything is read,
// so the attacker knows all of them from the start. Then it makes its moves, in any order: it shows
// any roll call to a process that has not signed one, and obtains its proof; and it shows any
// proofs that it knows or can make to a process that has signed. The state of the search is what
// each process has signed, and every combination is reached by some order of moves. Whether a
// process accepts proofs teaches the attacker nothing, so all proofs are tried in every state.
template <class Proof>
class Explorer {
 public:
  // `ranks` are those of processes that know the secret and are alive. The attacker plays a rank
  // that is missing; of a rank that appears twice, one belongs to another job with the same secret.
  Explorer(std::size_t size, const std::vector<int>& ranks) : size_(size) {
    std::vector<Proof> earlier;
    for (std::size_t rank = 0; rank < size; ++rank) {
      earlier.emplace_back(kJobSecret, static_cast<int>(rank), static_cast<int>(rank));
      greetings_.push_back(earlier.back().greeting());
    }
    const Texts roll = greetings_;
    for (Proof& each : earlier) recorded_.push_back(*each.proof(roll, names_of(size)));
    old_key_ = earlier[0].key(recorded_);
    greetings_.push_back("1 " + std::string(32, 'n'));
    greetings_.push_back("1 no secret");
    std::vector<Proof> alive;
    for (const int rank : ranks) {
      alive.emplace_back(kJobSecret, rank, rank);
      greetings_.push_back(alive.back().greeting());
    }
    for (std::size_t i = 0; i < alive.size(); ++i) {
      processes_.push_back({ranks[i], alive[i].greeting(), answers_of(alive[i])});
    }
    State state;
    visit(state);
  }

  std::size_t states() const { return states_; }
  std::size_t acceptances() const { return acceptances_; }
  const std::set<std::string>& faults() const { return faults_; }

 private:
  struct Answer {
    Texts roll;
    std::string proof;
    std::shared_ptr<const Proof> signer;
  };
  struct Process {
    int rank;
    std::string greeting;
    std::vector<Answer> answers;  // to the roll calls that the process signs
  };
  using State = std::vector<const Answer*>;  // null: the process has signed nothing

  std::vector<Answer> answers_of(const Proof& process) const {
    std::vector<Answer> answers;
    for (const Texts& roll : all_lists(greetings_, size_)) {
      const auto copy = std::make_shared<Proof>(process);
      try {
        if (const auto proof = copy->proof(roll, names_of(size_))) {
          answers.push_back({roll, *proof, copy});
        }
      } catch (const CommError&) {
        // The process refuses this roll call.
      }
    }
    return answers;
  }

  void visit(State& state) {
    if (state.size() == processes_.size()) return judge(state);
    const Process& next = processes_[state.size()];
    state.push_back(nullptr);
    visit(state);
    for (const Answer& each : next.answers) {
      state.back() = &each;
      visit(state);
    }
    state.pop_back();
  }

  void judge(const State& state) {
    ++states_;
    Texts known = recorded_;
    known.push_back(hmac_sha256(kOtherSecret, "lockstep proof 0 "));
    for (const Answer* each : state) {
      if (each != nullptr) known.push_back(each->proof);
    }
    std::map<std::string, Texts> rolls;
    const auto attempts = all_lists(known, size_);
    for (std::size_t i = 0; i < state.size(); ++i) {
      if (state[i] == nullptr) continue;
      for (const Texts& proofs : attempts) {
        try {
          check(state, i, state[i]->signer->key(proofs), known, rolls);
        } catch (const CommError&) {
          // The process refuses these proofs.
        }
      }
    }
  }

  // Process number `own` has accepted. `rolls` are those of the keys in this state.
  void check(const State& state, std::size_t own, const std::string& key, const Texts& known,
             std::map<std::string, Texts>& rolls) {
    ++acceptances_;
    const Texts& roll = state[own]->roll;
    if (key == old_key_) faults_.insert("the key of an earlier meeting");
    if (std::ranges::count(known, key) != 0) faults_.insert("a key that the attacker knows");
    if (rolls.emplace(key, roll).first->second != roll) faults_.insert("one key for two meetings");
    for (std::size_t rank = 0; rank < size_; ++rank) {
      bool signs = false;
      for (std::size_t i = 0; i < state.size(); ++i) {
        signs = signs || (state[i] != nullptr && state[i]->roll == roll &&
                          processes_[i].rank == static_cast<int>(rank) &&
                          processes_[i].greeting == roll[rank]);
      }
      if (!signs) faults_.insert("no process with the secret takes part as some rank");
    }
  }

  const std::size_t size_;
  Texts greetings_;  // the attacker makes roll calls of them
  Texts recorded_;   // the proofs of the earlier meeting
  std::string old_key_;
  std::vector<Process> processes_;
  std::size_t states_ = 0;
  std::size_t acceptances_ = 0;
  std::set<std::string> faults_;
};

TEST(SecretProof, HoldsAgainstEveryOrderOfMessagesAndForgeries) {
  struct Case {
    const char* what;
    std::size_t size;
    std::vector<int> ranks;
    bool can_meet;
  };
  const Case cases[] = {
      {"both ranks", 2, {0, 1}, true},
      {"rank 0 and the attacker", 2, {0}, false},
      {"rank 1 and the attacker", 2, {1}, false},
      {"both ranks, and a rank of another job with the secret", 2, {0, 1, 1}, true},
      {"two processes of rank 0, and the attacker", 2, {0, 0}, false},
      {"two of three ranks, and the attacker", 3, {0, 2}, false},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.what);
    const Explorer<SecretProof> explorer(each.size, each.ranks);
    EXPECT_EQ(explorer.faults(), std::set<std::string>());
    EXPECT_GT(explorer.states(), each.ranks.size());
    EXPECT_EQ(explorer.acceptances() > 0, each.can_meet);
  }
}

// Shows that the explorer would find the hole.
TEST(SecretProof, WithoutItsOwnGreetingWouldAcceptARecordedMeeting) {
  const Explorer<CarelessProof> explorer(2, {0});
  EXPECT_GT(explorer.faults().count("the key of an earlier meeting"), 0U);
  EXPECT_GT(explorer.faults().count("no process with the secret takes part as some rank"), 0U);
}

TEST(SecretProof, BindsWhatARankSaysOfItself) {
  SecretProof first(kJobSecret, 0, 4);
  SecretProof second(kJobSecret, 1, 7);
  // A store that changes the rank's number in the first group.
  const Texts changed{first.greeting(), "6" + second.greeting().substr(1)};
  EXPECT_THROW(second.proof(changed, {4, 6}), CommError);
  const Texts honest{first.greeting(), second.greeting()};
  const auto proof_of_first = first.proof(changed, {4, 6});
  const auto proof_of_second = second.proof(honest, {4, 7});
  EXPECT_THROW(first.key({*proof_of_first, *proof_of_second}), CommError);
  // Every list of other lengths.
  EXPECT_THROW(SecretProof(kJobSecret, 1, 1).proof({first.greeting()}, {0}), CommError);
  EXPECT_THROW(SecretProof(kJobSecret, 0, 0).proof({}, {}), CommError);
}

// --- In the store --------------------------------------------------------------------------------

// What is written into a store, also after it has been deleted.
using Written = std::map<std::string, std::vector<std::uint8_t>>;

// A store that records every entry, and calls `before` with the number of each call.
class WatchedStore final : public ForwardingStore<> {
 public:
  WatchedStore(c10::intrusive_ptr<c10d::Store> store, std::function<void(int)> before = {})
      : ForwardingStore(std::move(store)), before_(std::move(before)) {}

  c10::intrusive_ptr<c10d::Store> clone() override { return store().clone(); }
  void set(const std::string& key, const Bytes& value) override {
    count(key, value);
    ForwardingStore::set(key, value);
  }
  Bytes compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) override {
    count(key, desired);
    return ForwardingStore::compareSet(key, expected, desired);
  }
  Bytes get(const std::string& key) override {
    count();
    return ForwardingStore::get(key);
  }
  std::vector<Bytes> multiGet(const std::vector<std::string>& keys) override {
    count();
    return ForwardingStore::multiGet(keys);
  }
  std::int64_t add(const std::string& key, std::int64_t value) override {
    count();
    return ForwardingStore::add(key, value);
  }
  void wait(const std::vector<std::string>& keys, const milliseconds& timeout) override {
    count();
    ForwardingStore::wait(keys, timeout);
  }

  Written written() const {
    const std::scoped_lock lock(mutex_);
    return written_;
  }
  int calls() const {
    const std::scoped_lock lock(mutex_);
    return calls_;
  }

 private:
  void count(const std::string& key = "", const Bytes& value = {}) {
    int call = 0;
    {
      const std::scoped_lock lock(mutex_);
      call = calls_++;
      if (!key.empty()) written_[key] = value;
    }
    if (before_) before_(call);
  }

  const std::function<void(int)> before_;
  mutable std::mutex mutex_;
  int calls_ = 0;
  Written written_;
};

class RecordedMeeting : public ::testing::Test {
 protected:
  RecordedMeeting() { environment_.set("LOCKSTEP_SECRET", kJobSecret); }

  // Two ranks meet, and then exchange a text. Their errors; ranks that got forged texts say so.
  static Texts meet(const c10::intrusive_ptr<c10d::Store>& store, milliseconds timeout) {
    return run_threads(2, [&](int rank) {
      auto exchange = call_the_roll(store, rank, 2, timeout, rank);
      if (exchange.exchange("texts", rank == 0 ? "a" : "b") != Texts{"a", "b"}) {
        throw std::logic_error("forged");
      }
    });
  }

  // The entries of an earlier meeting.
  static Written record() {
    const auto store = c10::make_intrusive<WatchedStore>(c10::make_intrusive<c10d::HashStore>());
    EXPECT_EQ(meet(store, std::chrono::seconds(30)), Texts({"", ""}));
    return store->written();
  }

 private:
  testing_support::ScopedEnvironment environment_;
};

// The attacker writes the recorded entries of both ranks, and takes the place of rank 1.
TEST_F(RecordedMeeting, DoesNotAdmitWhoReplaysIt) {
  const Written recorded = record();
  ASSERT_TRUE(recorded.contains("roll call/all") && recorded.contains("proof of the secret/all"));
  const auto store = c10::make_intrusive<c10d::HashStore>();
  for (const auto& [key, value] : recorded) {
    if (key != "roll call/0" && key != "proof of the secret/0") store->set(key, value);
  }
  const auto errors = run_threads(1, [&](int) {
    call_the_roll(store, 0, 2, std::chrono::seconds(5), 0);
    throw std::logic_error("rank 0 takes the attacker for rank 1");
  });
  EXPECT_THAT(errors[0], ::testing::HasSubstr(
                             "rank 0 found another entry than its own in its place of the roll"));
}

// Both ranks are there. One forged entry must not make them derive a key that was used before.
TEST_F(RecordedMeeting, DoesNotGiveItsKeyToALaterOne) {
  const Written recorded = record();
  const auto store = c10::make_intrusive<c10d::HashStore>();
  store->set("roll call/all", recorded.at("roll call/all"));
  const auto errors = meet(store, std::chrono::seconds(5));
  for (const std::string& error : errors) {
    EXPECT_THAT(error, ::testing::HasSubstr("in its place of the roll call")) << error;
  }
}

// At every moment of a meeting, one entry is overwritten or deleted. Whatever comes of it, no rank
// accepts a text that the other did not write.
TEST_F(RecordedMeeting, ForgesNothingAtAnyMoment) {
  const Written recorded = record();
  Texts keys;
  for (const auto& [key, value] : recorded) {
    if (!value.empty()) keys.push_back(key);
  }
  for (const char* counter : {"rank/0", "rank/1", "roll call/count", "proof of the secret/count"}) {
    keys.emplace_back(counter);
  }
  const auto honest = c10::make_intrusive<WatchedStore>(c10::make_intrusive<c10d::HashStore>());
  EXPECT_EQ(meet(honest, std::chrono::seconds(30)), Texts({"", ""}));
  struct Forgery {
    std::string key;
    std::optional<std::vector<std::uint8_t>> value;  // empty: the key is deleted
    int moment;
  };
  std::vector<Forgery> forgeries;
  for (const std::string& key : keys) {
    for (int moment = 0; moment < honest->calls(); ++moment) {
      const auto found = recorded.find(key);
      const bool in_the_open = key.starts_with("roll call") || key.starts_with("proof");
      if (found != recorded.end() && (in_the_open || moment % 3 == 2)) {
        forgeries.push_back({key, found->second, moment});
      }
      if (moment % 3 == 0) forgeries.push_back({key, std::nullopt, moment});
      if (moment % 3 == 1) forgeries.push_back({key, store_bytes("2"), moment});
    }
  }
  std::atomic<std::size_t> next = 0;
  std::atomic<int> met = 0;
  std::atomic<int> refused = 0;
  const auto errors = run_threads(48, [&](int) {  // they mostly wait
    for (std::size_t i = next++; i < forgeries.size(); i = next++) {
      const Forgery& forgery = forgeries[i];
      const auto plain = c10::make_intrusive<c10d::HashStore>();
      plain->setTimeout(milliseconds(300));  // for entries that were deleted
      const auto store = c10::make_intrusive<WatchedStore>(plain, [&](int call) {
        if (call != forgery.moment) return;
        if (forgery.value) plain->set(forgery.key, *forgery.value);
        if (!forgery.value) plain->deleteKey(forgery.key);
      });
      for (const std::string& error : meet(store, milliseconds(300))) {
        if (error == "forged") throw Error(lockstep::str(forgery.key, " at ", forgery.moment));
        ++(error.empty() ? met : refused);
      }
    }
  });
  EXPECT_EQ(errors, testing_support::no_errors(48));
  EXPECT_GT(met, 0);
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace lockstep::comm
