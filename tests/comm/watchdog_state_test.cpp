// What watchdogs write into the store, and what one knows without connections to its peers.
#include <lockstep/comm/diagnostics/watchdog_state.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <lockstep/comm/backends/gloo/gloo_backend.h>
#include <lockstep/comm/diagnostics/watchdog.h>
#include <lockstep/comm/rendezvous/store_client.h>
#include <lockstep/comm/store/network.h>
#include <lockstep/comm/waiting/store_waits.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/descriptor.h>
#include <lockstep/core/error.h>
#include <tests/comm/served_store.h>
#include <tests/support/messages.h>

namespace lockstep::comm {
namespace {

bool looks_until(Watchdog& watchdog, const std::function<bool()>& condition) {
  const Deadline deadline(std::chrono::seconds(10));
  while (!condition() && !deadline.expired()) {
    watchdog.wait_for_news(std::chrono::milliseconds(100));
  }
  return condition();
}

TEST(WatchdogTexts, KeepEveryFieldOfAStatus) {
  const auto fields = [](const watching::Status& status) {
    return std::tuple(status.beat, status.number, status.knows_end, status.left, status.oldest,
                      status.oldest_call, status.words, status.doorbell);
  };
  const watching::Status statuses[] = {
      {},
      {.beat = (std::uint64_t{1} << 40) + 1,
       .number = (std::int64_t{1} << 40) + 2,
       .knows_end = true,
       .left = false,
       .oldest = (std::int64_t{1} << 40) + 3,
       .oldest_call = "all_reduce[float32, 2x3]",
       .words = "is in barrier (operation 3) and 2 more",
       .doorbell = "127.0.0.1 4711"},
      {.beat = 1, .number = 0, .left = true, .oldest = 0, .oldest_call = "barrier"},
      {.beat = 2, .words = "last completed barrier", .doorbell = "::1 65535"}};
  for (const watching::Status& status : statuses) {
    const std::string text = status.to_text();
    EXPECT_EQ(fields(watching::Status::from_text(text)), fields(status)) << text;
  }
}

TEST(WatchdogTexts, KeepEveryFieldOfAnEnd) {
  for (const int rank : {0, 1, 2}) {
    for (const bool late : {false, true}) {
      const watching::End end{rank, late, "rank 1 died (no sign of life for 0.9 s)"};
      const auto copy = watching::End::from_text(end.to_text(), 3);
      ASSERT_TRUE(copy) << end.to_text();
      EXPECT_EQ(std::tuple(copy->rank, copy->late, copy->reason),
                std::tuple(rank, late, end.reason));
    }
  }
  for (const int rank : {-1, 3}) {
    EXPECT_FALSE(watching::End::from_text(watching::End{rank, false, "a reason"}.to_text(), 3));
  }
}

// A reason is one line of the store's value; the same words must arrive everywhere.
TEST(WatchdogTexts, TellAReasonOfSeveralLinesInOne) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const WatchdogOptions options{.beat = std::chrono::milliseconds(20)};
  Watchdog first(store, 0, 2, options);
  Watchdog second(store, 1, 2, options);
  first.abort("the loss\nis\ninfinite");
  std::string told;
  EXPECT_TRUE(looks_until(second, [&] {
    try {
      second.throw_if_ended();
      return false;
    } catch (const CommError& error) {
      told = error.what();
      return true;
    }
  }));
  EXPECT_EQ(told, "rank 0 ended the group: the loss is infinite");
  EXPECT_EQ(testing_support::message_of<CommError>([&] { first.throw_if_ended(); }),
            "the loss is infinite");
}

TEST(WatchdogTexts, NameAllWhoAreSilent) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const watching::Status status{.beat = 7, .number = 3, .words = "is in barrier (operation 3)"};
  for (const int rank : {1, 2}) store->set(str("status/", rank), store_bytes(status.to_text()));
  const Clock::time_point start = Clock::now();
  Watchdog watchdog(store, 0, 3, {.beat = std::chrono::milliseconds(20), .world_ranks = {4, 7, 5}});
  EXPECT_TRUE(looks_until(watchdog, [&] { return !watchdog.explanation().empty(); }));
  const std::string text = watchdog.explanation();
  const std::string begin = "ranks 7, 5 died (no sign of life for ";
  ASSERT_THAT(text, testing::AllOf(testing::StartsWith(begin), testing::EndsWith(" s)")));
  EXPECT_LE(std::stod(text.substr(begin.size())), seconds_since(start) + 0.1);
  EXPECT_EQ(watchdog.missing(3), "ranks 7, 5");
}

// If connections can be queried, a rank that takes no part in a message does not fail it.
TEST(WatchdogTexts, NameWhoLeftWhateverItsRank) {
  for (const int leaver : {0, 2}) {
    for (const bool has_connections : {false, true}) {
      SCOPED_TRACE(str("rank ", leaver, has_connections ? " of ranks with connections" : ""));
      const auto store = c10::make_intrusive<c10d::HashStore>();
      for (const int rank : {0, 2}) {
        const watching::Status status{.beat = 7, .number = 3, .left = rank == leaver};
        store->set(str("status/", rank), store_bytes(status.to_text()));
      }
      WatchdogOptions options{.beat = std::chrono::minutes(1)};
      if (has_connections) options.disconnected = [](int) { return false; };
      Watchdog watchdog(store, 1, 3, options);
      EXPECT_TRUE(looks_until(watchdog, [&] { return watchdog.missing(3).empty(); }));
      const std::string reason = str("rank ", leaver, " left the group");
      EXPECT_EQ(watchdog.explanation(), reason);
      EXPECT_EQ(watchdog.explanation(leaver), reason);
      EXPECT_EQ(watchdog.explanation(2 - leaver), has_connections ? "" : reason);
      EXPECT_EQ(watchdog.missing(4), "ranks 0, 2");
      EXPECT_EQ(watchdog.missing(std::nullopt), "");
    }
  }
}

// A store in which rank 1 answers when rank 0, which is leaving, looks for its answer for the third
// time.
class StoreOfALateAnswer final : public c10d::HashStore {
 public:
  explicit StoreOfALateAnswer(const watching::Status& answer) : answer_(answer.to_text()) {}
  c10::intrusive_ptr<c10d::Store> clone() override { throw Error("not used"); }
  using c10d::Store::set;
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override {
    HashStore::set(key, value);
    if (key == "status/0" && watching::Status::from_text(store_text(value)).left) {
      left_at = Clock::now();
    }
  }
  bool check(const std::vector<std::string>& keys) override {
    if (left_at && keys[0] == "status/1" && ++looks == 3) {
      HashStore::set("status/1", store_bytes(answer_));
    }
    return HashStore::check(keys);
  }

  std::optional<Clock::time_point> left_at;
  int looks = 0;  // since then

 private:
  const std::string answer_;
};

struct LastWait {
  const char* name;
  int store_rank;
  bool ends;
  watching::Status answer;
  int looks;
};

TEST(WatchdogLosses, AreAvoidedByTheRankThatServesTheStore) {
  const LastWait waits[] = {
      {"until the peer has read the end", 0, true, {.beat = 8, .knows_end = true}, 3},
      {"until the peer has left", 0, true, {.beat = 8, .left = true}, 3},
      {"for nothing in a group that has not ended", 0, false, {.beat = 8}, 0},
      {"for nothing if a peer serves the store", 1, true, {.beat = 8}, 0},
      {"for nothing if no rank serves the store", -1, true, {.beat = 8}, 0}};
  for (const LastWait& each : waits) {
    SCOPED_TRACE(each.name);
    const auto store = c10::make_intrusive<StoreOfALateAnswer>(each.answer);
    {
      Watchdog watchdog(store, 0, 2,
                        {.beat = std::chrono::milliseconds(20), .store_rank = each.store_rank});
      if (each.ends) watchdog.abort("enough");
    }
    ASSERT_TRUE(store->left_at);
    EXPECT_EQ(store->looks, each.looks);
    if (each.looks > 0) {
      EXPECT_GE(Clock::now() - *store->left_at, std::chrono::milliseconds(40))
          << "it pauses between two looks";
    }
  }
}

// A rank remembers the calls by which it can be ahead of a rank that waits in one of them.
TEST(WatchdogCalls, AreComparedWithThoseThatAreRemembered) {
  for (const int calls : {256, 257}) {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    Watchdog watchdog(store, 1, 2, {.beat = std::chrono::milliseconds(20), .store_rank = -1});
    for (int number = 0; number < calls; ++number) {
      watchdog.note({}, static_cast<std::uint64_t>(number));
    }
    const watching::Status waiting{.beat = 7, .number = 0, .oldest = 0, .oldest_call = "gather"};
    store->set("status/0", store_bytes(waiting.to_text()));
    for (int look = 0; look < 3; ++look) watchdog.wait_for_news(std::chrono::seconds(10));
    const bool remembers = calls == 256;
    EXPECT_EQ(testing_support::message_of<CommError>([&] { watchdog.throw_if_ended(); }),
              remembers ? "the ranks call different operations: rank 1 called barrier as number 0, "
                          "rank 0 called gather"
                        : "nothing was thrown");
    const auto own = watching::Status::from_text(store_text(store->get("status/1")));
    EXPECT_EQ(own.number, calls - 1);
    EXPECT_EQ(own.words, str("last completed barrier (operation ", calls - 1, ")"));
    EXPECT_EQ(own.oldest, -1) << "a call that is over is not under way";
    EXPECT_EQ(own.knows_end, remembers);
  }
}

// Whichever rank finds the difference, its text names the higher rank first.
TEST(WatchdogCalls, ThatDifferAreToldInTheSameWordsByEveryRank) {
  for (const int own : {0, 1}) {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    const watching::Status waiting{
        .beat = 7, .number = 5, .oldest = 5, .oldest_call = own == 1 ? "gather" : "barrier"};
    store->set(str("status/", 1 - own), store_bytes(waiting.to_text()));
    Watchdog watchdog(
        store, own, 2,
        {.beat = std::chrono::milliseconds(20), .world_ranks = {8, 3}, .store_rank = -1});
    CallDescription call;
    call.kind = own == 1 ? CallKind::kBarrier : CallKind::kBroadcast;
    watchdog.started(call, 5);
    std::string reason;
    EXPECT_TRUE(looks_until(watchdog, [&] {
      reason = testing_support::message_of<CommError>([&] { watchdog.throw_if_ended(); });
      return reason != "nothing was thrown";
    }));
    EXPECT_EQ(reason, str("the ranks call different operations: rank 3 called barrier as number 5, "
                          "rank 8 called ",
                          own == 1 ? "gather" : describe(call)));
  }
}

struct StoreLoss {
  const char* name;
  int store_rank;
  bool has_connections;  // all of which are open
  const char* reason;
};

// Without connections that can be queried, only the rank that serves the store is known to be gone.
TEST(WatchdogLosses, AreThoseOfTheRankThatServesTheStore) {
  constexpr const char* kGone = "rank 0 died or left the group (its store is gone)";
  const StoreLoss losses[] = {{"served by a peer", 0, false, kGone},
                              {"served by this rank", 1, false, ""},
                              {"served by no rank of this group", -1, false, ""},
                              {"served by a peer that is connected", 0, true, ""}};
  auto served = std::make_unique<tcp_store::ServedStore>();
  std::vector<std::unique_ptr<Watchdog>> watchdogs;
  for (const StoreLoss& loss : losses) {
    WatchdogOptions options{.beat = std::chrono::minutes(1), .store_rank = loss.store_rank};
    if (loss.has_connections) options.disconnected = [](int) { return false; };
    watchdogs.push_back(std::make_unique<Watchdog>(
        c10::make_intrusive<StoreClient>(served->options()), 1, 3, options));
  }
  for (const auto& watchdog : watchdogs) {
    for (int look = 0; look < 2; ++look) {
      watchdog->hurry();  // looks more often than its beat, by which it judges silence
      watchdog->wait_for_news(std::chrono::seconds(10));
    }
    EXPECT_EQ(watchdog->store_trouble(), "");
    EXPECT_EQ(watchdog->explanation(), "");
    EXPECT_EQ(watchdog->lost_store(std::chrono::minutes(1)), "");
  }
  served.reset();
  for (std::size_t i = 0; i < watchdogs.size(); ++i) {
    SCOPED_TRACE(losses[i].name);
    Watchdog& watchdog = *watchdogs[i];
    EXPECT_TRUE(looks_until(watchdog, [&] {
      watchdog.hurry();
      return !watchdog.store_trouble().empty();
    }));
    EXPECT_EQ(watchdog.explanation(), losses[i].reason);
    EXPECT_EQ(watchdog.lost_store(std::chrono::milliseconds(0)), losses[i].reason);
    EXPECT_EQ(watchdog.lost_store(std::chrono::minutes(1)), "") << "it may come back";
  }
}

// A store that answers until it is lost.
class StoreUntilLost final : public c10d::HashStore {
 public:
  c10::intrusive_ptr<c10d::Store> clone() override { throw Error("not used"); }
  using c10d::Store::set;
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override {
    if (lost) throw std::system_error(std::make_error_code(std::errc::connection_reset));
    HashStore::set(key, value);
  }

  std::atomic<bool> lost = false;
};

struct StoreLossOfFour {
  const char* name;
  int store_rank;
  std::vector<int> left;    // ranks that have left before the store is lost
  std::vector<int> closed;  // ranks whose connections are closed
  const char* reason;
};

// This rank is rank 1 of the group. The world calls the ranks 9, 8, 7 and 6.
TEST(WatchdogLosses, AreExplainedByTheConnectionsThatAreClosed) {
  const StoreLossOfFour losses[] = {
      {"one, while the host is connected",
       0,
       {},
       {2},
       "rank 7 died or left the group (its connection is closed, and the store, which would know, "
       "is gone)"},
      {"two, while the host is connected",
       0,
       {},
       {2, 3},
       "ranks 7, 6 died or left the group (their connections are closed, and the store, which "
       "would know, is gone)"},
      {"the host, after another has left",
       0,
       {2},
       {0, 2},
       "rank 9 died or left the group (its store is gone)"},
      {"all",
       0,
       {},
       {0, 2, 3},
       "rank 9 died or left the group (its store is gone); the connections to ranks 7, 6 are "
       "closed, too"},
      {"one, after the host and another have left",
       0,
       {0, 2},
       {0, 2, 3},
       "rank 6 died or left the group (its connection is closed, and the store, which would know, "
       "is gone)"},
      {"nobody, after all have left", 0, {0, 2, 3}, {0, 2, 3}, "rank 9 left the group"},
      {"two of a group whose host is this rank",
       1,
       {},
       {0, 2},
       "ranks 9, 7 died or left the group (their connections are closed, and the store, which "
       "would know, is gone)"},
      {"nobody", 0, {}, {}, ""}};
  for (const StoreLossOfFour& loss : losses) {
    SCOPED_TRACE(loss.name);
    const auto has = [](const std::vector<int>& ranks, int rank) {
      return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
    };
    const auto store = c10::make_intrusive<StoreUntilLost>();
    for (const int rank : {0, 2, 3}) {
      const watching::Status status{.beat = 7, .number = 3, .left = has(loss.left, rank)};
      store->set(str("status/", rank), store_bytes(status.to_text()));
    }
    WatchdogOptions options{.beat = std::chrono::minutes(1),
                            .world_ranks = {9, 8, 7, 6},
                            .store_rank = loss.store_rank};
    options.disconnected = [&](int rank) { return has(loss.closed, rank); };
    Watchdog watchdog(store, 1, 4, options);
    EXPECT_TRUE(looks_until(watchdog, [&] { return watchdog.missing(3).empty(); }));
    store->lost = true;
    EXPECT_TRUE(looks_until(watchdog, [&] {
      watchdog.hurry();
      return !watchdog.store_trouble().empty();
    }));
    for (int look = 0; look < 2; ++look) {  // the first may have begun before
      watchdog.hurry();
      watchdog.wait_for_news(std::chrono::seconds(10));
    }
    EXPECT_EQ(watchdog.explanation(), loss.reason);
  }
}

// A store that is lost at the first question.
class LostStore final : public c10d::HashStore {
 public:
  using c10d::Store::compareSet;
  std::vector<std::uint8_t> compareSet(const std::string&, const std::vector<std::uint8_t>&,
                                       const std::vector<std::uint8_t>&) override {
    throw std::system_error(std::make_error_code(std::errc::connection_reset));
  }
};

// Rank 1 of three ranks in a library whose connections are all closed.
class ClosedLibrary final : public c10d::Backend {
 public:
  ClosedLibrary() : c10d::Backend(1, 3) {}
  const std::string getBackendName() const override { return "closed"; }
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>&, int, int) override {
    throw std::runtime_error("the connection is closed");
  }
};

// The rank that serves the store of the job may have any place in a group, or none.
TEST(WatchdogLosses, OverALibraryNameTheRankOfTheGroupThatServesTheStore) {
  const std::pair<int, const char*> cases[] = {
      {0,
       "rank 3 died or left the group (its store is gone); the connections to rank 5 are closed, "
       "too"},
      {2,
       "rank 5 died or left the group (its store is gone); the connections to rank 3 are closed, "
       "too"},
      {-1,
       "ranks 3, 5 died or left the group (their connections are closed, and the store, which "
       "would know, is gone)"}};
  for (const auto& each : cases) {
    const auto backend = gloo::adapt(
        c10::make_intrusive<ClosedLibrary>(), c10::make_intrusive<LostStore>(),
        {.timeout = std::chrono::seconds(1), .world_ranks = {3, 7, 5}, .store_rank = each.first});
    Watchdog& watchdog = *backend->watchdog();
    EXPECT_TRUE(looks_until(watchdog, [&] { return watchdog.explanation() == each.second; }))
        << watchdog.explanation();
    EXPECT_THAT(watchdog.store_trouble(), testing::StartsWith("rank 7 lost the store: "));
  }
}

// A host is probed at its rank's doorbell, which a rank hangs only if hosts are to be probed.
TEST(WatchdogProbes, OfARanksHostAreWantedByTheAdapterOfALibrary) {
  for (const int host_timeout_seconds : {0, 10}) {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    std::atomic<int> farewells = 0;
    {
      const auto backend =
          gloo::adapt(c10::make_intrusive<ClosedLibrary>(), store,
                      {.timeout = std::chrono::seconds(1),
                       .forget_keys = [&] { ++farewells; },
                       .own_address = "127.0.0.1",
                       .host_timeout = std::chrono::seconds(host_timeout_seconds)});
      EXPECT_TRUE(looks_until(*backend->watchdog(), [&] { return store->check({"status/1"}); }));
      const auto own = watching::Status::from_text(store_text(store->get("status/1")));
      const bool has_doorbell = own.doorbell.starts_with("127.0.0.1 ");
      EXPECT_EQ(has_doorbell, host_timeout_seconds > 0) << own.doorbell;
      EXPECT_EQ(farewells, 0);
    }
    EXPECT_EQ(farewells, 1);
  }
}

struct Prober {
  const char* name;
  int own;
  int silent;
  int left;  // -1: none
  bool probes;
};

// The four ranks that follow a silent one probe its host for all of six ranks.
TEST(WatchdogProbes, AreLeftToTheRanksThatFollow) {
  const Prober probers[] = {{"the next", 2, 1, -1, true},
                            {"the fourth", 5, 1, -1, true},
                            {"the fifth", 0, 1, -1, false},
                            {"the fifth, of whom one has left", 0, 1, 3, true},
                            {"the fourth, beyond the last rank", 2, 4, -1, true},
                            {"the fifth, beyond the last rank", 3, 4, -1, false}};
  for (const Prober& each : probers) {
    SCOPED_TRACE(each.name);
    const Descriptor host(listen_on("127.0.0.1", 0));
    const auto store = c10::make_intrusive<c10d::HashStore>();
    for (int rank = 0; rank < 6; ++rank) {
      watching::Status status{.beat = 7, .number = 3, .left = rank == each.left};
      if (rank == each.silent) status.doorbell = str("127.0.0.1 ", bound_port(host.get()));
      if (rank != each.own) store->set(str("status/", rank), store_bytes(status.to_text()));
    }
    Watchdog watchdog(store, each.own, 6,
                      {.beat = std::chrono::minutes(1),
                       .store_rank = -1,
                       .host_timeout = std::chrono::milliseconds(20)});
    for (int look = 0; look < 3; ++look) {
      watchdog.hurry();  // looks more often than its beat, by which it judges silence
      watchdog.wait_for_news(std::chrono::seconds(10));
    }
    pollfd polled{host.get(), POLLIN, 0};
    EXPECT_EQ(poll(&polled, 1, 0), each.probes ? 1 : 0);
  }
}

// Messages have no number that all ranks share, so that a rank cannot be compared by them.
TEST(WatchdogCalls, TellOfTheOldestCollectiveUnderWay) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  Watchdog watchdog(store, 0, 2, {.beat = std::chrono::milliseconds(20), .store_rank = -1});
  const auto told = [&] { return watching::Status::from_text(store->get_to_str("status/0")); };
  CallDescription receive;
  receive.kind = CallKind::kRecv;
  receive.type = detail::DataType::kFloat32;
  receive.count = 4;
  CallDescription gather = receive;
  gather.kind = CallKind::kAllGather;
  watchdog.started(receive, std::nullopt);
  const auto first = watchdog.started({}, 5);
  const auto last = watchdog.started(gather, 6);
  EXPECT_TRUE(looks_until(watchdog, [&] { return told().number == 6; }));
  EXPECT_EQ(told().oldest, 5);
  EXPECT_EQ(told().oldest_call, "barrier");
  EXPECT_EQ(told().words, "is in recv[float32, 4, from any rank] and 2 more");
  watchdog.completed(first);
  EXPECT_TRUE(looks_until(watchdog, [&] { return told().oldest == 6; }));
  EXPECT_EQ(told().oldest_call, "all_gather[float32, 4]");
  watchdog.completed(last);
  EXPECT_TRUE(looks_until(watchdog, [&] { return told().oldest == -1; }));
  EXPECT_EQ(told().oldest_call, "");
  EXPECT_EQ(told().words, "is in recv[float32, 4, from any rank]");
  EXPECT_EQ(told().number, 6);
}

// The reason of an end has no words for a call where this rank is in none.
TEST(WatchdogTexts, NameNoCallOfARankThatIsInNone) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const watching::Status status{.beat = 7, .number = 3};
  store->set("status/1", store_bytes(status.to_text()));
  Watchdog watchdog(store, 0, 2,
                    {.beat = std::chrono::milliseconds(20),
                     .store_rank = -1,
                     .silence_limit = std::chrono::milliseconds(60)});
  std::string reason;
  EXPECT_TRUE(looks_until(watchdog, [&] {
    reason = testing_support::message_of<CommError>([&] { watchdog.throw_if_ended(); });
    return reason != "nothing was thrown";
  }));
  EXPECT_THAT(reason, testing::MatchesRegex(
                          "rank 1 died or is stopped \\(no sign of life for [0-9]+ s\\)"));
}

}  // namespace
}  // namespace lockstep::comm
