// Watchdogs of several ranks over one store.
#include <lockstep/comm/diagnostics/watchdog.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <latch>
#include <optional>
#include <system_error>
#include <thread>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <lockstep/comm/backends/gloo/gloo_backend.h>
#include <lockstep/comm/rendezvous/store_client.h>
#include <lockstep/comm/store/network.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <tests/support/silent_place.h>
#include <tests/support/tcp_store.h>

namespace lockstep::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

WatchdogOptions quick() { return {.beat = milliseconds(20)}; }

// Looks repeatedly, like a wait.
bool eventually(Watchdog& watchdog, const std::function<bool()>& condition) {
  const Deadline deadline(seconds(10));
  while (!condition() && !deadline.expired()) watchdog.wait_for_news(milliseconds(100));
  return condition();
}

std::string end_of(const Watchdog& watchdog) {
  try {
    watchdog.throw_if_ended();
  } catch (const TimeoutError& error) {
    return str("TimeoutError: ", error.what());
  } catch (const CommError& error) {
    return str("CommError: ", error.what());
  }
  return "";
}

CallDescription barrier() { return {}; }

TEST(Watchdog, TellsWhatPeersDo) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  Watchdog first(store, 0, 3, quick());
  Watchdog second(store, 1, 3, quick());
  Watchdog third(store, 2, 3, quick());
  const auto ticket = second.started(barrier(), 0);
  EXPECT_TRUE(eventually(first, [&] {
    return first.whereabouts() ==
           "rank 1 is in barrier (operation 0), rank 2 has called nothing yet";
  })) << first.whereabouts();
  EXPECT_EQ(first.missing(0), "rank 2");
  EXPECT_EQ(first.missing(1), "ranks 1, 2");
  second.completed(ticket);
  EXPECT_TRUE(eventually(first, [&] {
    return first.whereabouts() ==
           "rank 1 last completed barrier (operation 0), rank 2 has called nothing yet";
  })) << first.whereabouts();
  EXPECT_EQ(first.explanation(), "");
}

TEST(Watchdog, NamesRanksByTheirPlaceInTheFirstGroup) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  auto options = quick();
  options.world_ranks = {5, 3};
  Watchdog first(store, 0, 2, options);
  Watchdog second(store, 1, 2, options);
  second.abort("enough");
  EXPECT_EQ(end_of(second), "CommError: enough");
  EXPECT_TRUE(eventually(first, [&] { return !end_of(first).empty(); }));
  EXPECT_EQ(end_of(first), "CommError: rank 3 ended the group: enough");
  EXPECT_EQ(first.missing(0), "rank 3");
}

TEST(Watchdog, TheFirstReasonWinsEverywhere) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::atomic<int> announcements = 0;
  auto options = quick();
  options.ended = [&] { ++announcements; };
  {
    Watchdog first(store, 0, 2, options);
    Watchdog second(store, 1, 2, options);
    first.abort("one", /*late=*/true);
    EXPECT_TRUE(eventually(second, [&] { return !end_of(second).empty(); }));
    second.abort("two");
    EXPECT_EQ(end_of(first), "TimeoutError: one");
    EXPECT_EQ(end_of(second), "TimeoutError: rank 0 ended the group: one");
    EXPECT_TRUE(eventually(second, [&] { return announcements == 2; }));
  }
  EXPECT_EQ(announcements, 2);
}

TEST(Watchdog, AnEndIsNeverWithoutWords) {
  for (const char* strange :
       {"garbage", "7 garbage", "1", "1 0 ", "7 0 of a rank that is not there"}) {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    Watchdog first(store, 0, 2, quick());
    store->set("abort", std::vector<std::uint8_t>(strange, strange + std::string(strange).size()));
    EXPECT_TRUE(eventually(first, [&] { return !end_of(first).empty(); }));
    EXPECT_THAT(end_of(first),
                testing::StartsWith("CommError: the group ended, and what its store"))
        << strange;
  }
  const auto store = c10::make_intrusive<c10d::HashStore>();
  Watchdog first(store, 0, 2, quick());
  Watchdog second(store, 1, 2, quick());
  second.abort("");
  EXPECT_TRUE(eventually(first, [&] { return !end_of(first).empty(); }));
  EXPECT_EQ(end_of(first),
            "CommError: rank 1 ended the group: the group was aborted, and no reason was given");
}

TEST(Watchdog, AnEndThatIsToldOnLeavingArrives) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  Watchdog first(store, 0, 2, quick());
  Watchdog(store, 1, 2, quick()).abort("enough");
  EXPECT_TRUE(eventually(first, [&] { return !end_of(first).empty(); }));
  EXPECT_EQ(end_of(first), "CommError: rank 1 ended the group: enough");
}

TEST(Watchdog, KnowsWhoLeftAndLeavesNoKeys) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  {
    Watchdog first(store, 0, 2, quick());
    {
      const Watchdog second(store, 1, 2, quick());
    }
    EXPECT_TRUE(eventually(first, [&] { return first.explanation() == "rank 1 left the group"; }));
    EXPECT_THAT(first.whereabouts(), HasSubstr("rank 1 has called nothing yet and left the group"));
    EXPECT_EQ(end_of(first), "");
  }
  EXPECT_EQ(store->getNumKeys(), 0);
}

// A rank that wrote its status once and then never again.
void write_status(c10d::Store& store, int rank, const std::string& text) {
  store.set(str("status/", rank), std::vector<std::uint8_t>(text.begin(), text.end()));
}

TEST(Watchdog, ASilentPeerIsDeadOnceItsConnectionIsClosed) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  write_status(*store, 1, "7 3 0 is in barrier (operation 3)");
  std::atomic<bool> closed = false;
  auto options = quick();
  options.disconnected = [&](int rank) { return rank == 1 && closed; };
  Watchdog watchdog(store, 0, 2, options);
  watchdog.started(barrier(), 3);
  // The rank may be stopped, which is no error but is reported.
  EXPECT_TRUE(eventually(watchdog, [&] { return !watchdog.explanation().empty(); }));
  EXPECT_THAT(watchdog.explanation(), HasSubstr("rank 1 died (no sign of life for "));
  EXPECT_EQ(end_of(watchdog), "");
  EXPECT_EQ(watchdog.missing(3), "rank 1");
  EXPECT_TRUE(eventually(watchdog, [&] {
    return watchdog.whereabouts().find("has been silent for") != std::string::npos;
  }));
  closed = true;
  EXPECT_TRUE(eventually(watchdog, [&] { return !end_of(watchdog).empty(); }));
  EXPECT_THAT(end_of(watchdog), HasSubstr("CommError: rank 1 died (no sign of life for "));
  EXPECT_THAT(end_of(watchdog), HasSubstr(" while rank 0 was in barrier (operation 3)"));
}

// Without connections whose state can be queried, only time tells that a rank is dead.
TEST(Watchdog, ASilentPeerIsDeadAfterTheLimitOfSilence) {
  for (const bool has_limit : {true, false}) {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    write_status(*store, 1, "7 3 0 0 -1 is in barrier (operation 3)");
    auto options = quick();
    if (has_limit) options.silence_limit = milliseconds(100);
    Watchdog watchdog(store, 0, 2, options);
    watchdog.started(barrier(), 3);
    if (has_limit) {
      EXPECT_TRUE(eventually(watchdog, [&] { return !end_of(watchdog).empty(); }));
      EXPECT_THAT(
          end_of(watchdog),
          testing::StartsWith("CommError: rank 1 died or is stopped (no sign of life for "));
      EXPECT_THAT(end_of(watchdog), testing::EndsWith(" s) while rank 0 was in barrier "
                                                      "(operation 3)"));
    } else {
      EXPECT_TRUE(eventually(watchdog, [&] { return !watchdog.explanation().empty(); }));
      for (int look = 0; look < 3; ++look) watchdog.wait_for_news(seconds(10));
      EXPECT_EQ(end_of(watchdog), "");
    }
  }
}

// A HashStore that can be made to fail or to stop answering.
class FaultyStore final : public c10d::Store {
 public:
  c10::intrusive_ptr<c10d::Store> clone() override { throw Error("not used"); }
  using c10d::Store::set;
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override {
    answer();
    store_->set(key, value);
  }
  std::vector<std::uint8_t> compareSet(const std::string& key,
                                       const std::vector<std::uint8_t>& expected,
                                       const std::vector<std::uint8_t>& desired) override {
    answer();
    return store_->compareSet(key, expected, desired);
  }
  std::vector<std::uint8_t> get(const std::string& key) override { return store_->get(key); }
  std::int64_t add(const std::string& key, std::int64_t value) override {
    return store_->add(key, value);
  }
  bool deleteKey(const std::string& key) override { return store_->deleteKey(key); }
  bool check(const std::vector<std::string>& keys) override {
    answer();
    return store_->check(keys);
  }
  std::int64_t getNumKeys() override { return store_->getNumKeys(); }
  void wait(const std::vector<std::string>& keys) override { store_->wait(keys); }
  void wait(const std::vector<std::string>& keys, const milliseconds& timeout) override {
    store_->wait(keys, timeout);
  }

  std::atomic<bool> gone = false;
  std::atomic<std::errc> failure{};  // 0: none
  std::atomic<bool> late = false;
  std::atomic<bool> full = false;
  std::atomic<bool> mute = false;
  std::latch muted{1};
  std::latch released{1};
  std::latch answered{1};

 private:
  void answer() {
    if (const std::errc code = failure; code != std::errc{}) {
      throw std::system_error(std::make_error_code(code));
    }
    if (gone) C10_THROW_ERROR(DistNetworkError, "connection closed");
    if (late) throw TimeoutError("waited 30 s");
    if (full) throw Error("no room for another key");
    if (!mute.exchange(false)) return;
    muted.count_down();
    released.wait();
    answered.count_down();
  }
  c10::intrusive_ptr<c10d::HashStore> store_ = c10::make_intrusive<c10d::HashStore>();
};

// A receive from any rank fails when the last peer has left, but not before.
TEST(Watchdog, AReceiveFromAnyRankEndsOnceThisRankIsAlone) {
  const auto store = c10::make_intrusive<FaultyStore>();
  CallDescription receive;
  receive.kind = CallKind::kRecv;
  receive.type = detail::DataType::kFloat32;
  receive.count = 4;
  Watchdog first(store, 0, 3, quick());
  std::optional<Watchdog> third;
  third.emplace(store, 2, 3, quick());
  third->note(barrier(), 0);
  Watchdog(store, 1, 3, quick()).note(barrier(), 0);
  first.started(receive, std::nullopt);
  EXPECT_TRUE(eventually(first, [&] { return first.missing(0).empty(); }));
  EXPECT_TRUE(eventually(first, [&] { return first.left(1) == "rank 1 left the group"; }));
  EXPECT_EQ(end_of(first), "");
  EXPECT_EQ(first.left(2), "");
  EXPECT_EQ(first.departed(0), "") << "rank 1 may have done its part of it";
  EXPECT_EQ(first.departed(1), "rank 1 left the group");
  third.reset();
  store->full = true;  // this rank cannot say that it ends, and ends all the same
  EXPECT_TRUE(eventually(first, [&] { return !end_of(first).empty(); }));
  EXPECT_EQ(end_of(first),
            "CommError: rank 2 left the group while rank 0 was in recv[float32, 4, from any rank]");
}

TEST(Watchdog, CountsTheOtherCallsOfAPeer) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  Watchdog first(store, 0, 2, quick());
  Watchdog second(store, 1, 2, quick());
  const auto oldest = second.started(barrier(), 0);
  second.started(barrier(), 1);
  second.started(barrier(), 2);
  EXPECT_TRUE(eventually(first, [&] {
    return first.whereabouts() == "rank 1 is in barrier (operation 0) and 2 more";
  })) << first.whereabouts();
  second.completed(oldest);
  second.completed(oldest);
  EXPECT_TRUE(eventually(first, [&] {
    return first.whereabouts() == "rank 1 is in barrier (operation 1) and 1 more";
  })) << first.whereabouts();
}

void write_silent_status(c10d::Store& store, const std::string& doorbell) {
  write_status(store, 1, "7 3 0 0 -1 is in barrier (operation 3)\n\n" + doorbell);
}

TEST(Watchdog, ASilentPeerIsDeadOnceItsHostDoesNotAnswer) {
  const testing_support::SilentPlace host;
  if (!host.is_silent()) GTEST_SKIP() << "this kernel takes every connection";
  const auto store = c10::make_intrusive<c10d::HashStore>();
  write_silent_status(*store, host.place());
  auto options = quick();
  options.host_timeout = milliseconds(50);
  Watchdog watchdog(store, 0, 2, options);
  watchdog.started(barrier(), 3);
  EXPECT_TRUE(eventually(watchdog, [&] { return !end_of(watchdog).empty(); }));
  EXPECT_THAT(end_of(watchdog), HasSubstr("CommError: rank 1 died or is cut off (no sign of life"));
  EXPECT_THAT(end_of(watchdog), HasSubstr(" while rank 0 was in barrier (operation 3)"));
}

// If a debugger stops a rank, or it gets no processor time, its host's kernel still answers.
TEST(Watchdog, ASilentPeerWhoseHostAnswersIsAwaited) {
  const int fd = listen_on("127.0.0.1", 0);
  const auto store = c10::make_intrusive<c10d::HashStore>();
  write_silent_status(*store, str("127.0.0.1 ", bound_port(fd)));
  auto options = quick();
  options.host_timeout = milliseconds(20);
  Watchdog watchdog(store, 0, 2, options);
  for (int asked = 0; asked < 3; ++asked) {
    pollfd polled{fd, POLLIN, 0};
    ASSERT_EQ(poll(&polled, 1, 10'000), 1) << "the host is not asked";
    close(accept(fd, nullptr, nullptr));
  }
  EXPECT_EQ(end_of(watchdog), "");
  close(fd);
}

// Peers can probe the address that a rank publishes for its host.
TEST(Watchdog, TellsWhereItsHostAnswers) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  auto options = quick();
  options.host_timeout = seconds(10);
  options.own_address = "127.0.0.1";
  Watchdog watchdog(store, 1, 2, options);
  watchdog.wait_for_news(seconds(10));
  const std::string status = store->get_to_str("status/1");
  const std::string doorbell = status.substr(status.rfind('\n') + 1);
  EXPECT_THAT(doorbell, testing::StartsWith("127.0.0.1 "));
  EXPECT_TRUE(is_reached("127.0.0.1", static_cast<std::uint16_t>(std::stoi(doorbell.substr(10))),
                         seconds(10)));
}

// The rank that serves the store does not leave before its peers have read why the group ended.
TEST(Watchdog, AnEndThatTheStoresHostTellsOnLeavingArrives) {
  const int fd = listen_on("127.0.0.1", 0);
  const std::uint16_t port = bound_port(fd);
  auto server = std::make_shared<tcp_store::Server>(fd);
  auto options = quick();
  options.beat =
      milliseconds(150);  // the other rank reads the reason some time after it was written
  Watchdog second(c10::make_intrusive<StoreClient>(tcp_store::ConnectionOptions{.port = port}), 1,
                  2, options);
  {
    Watchdog first(c10::make_intrusive<StoreClient>(tcp_store::ConnectionOptions{.port = port}), 0,
                   2, options);
    EXPECT_TRUE(
        eventually(first, [&] { return first.whereabouts().find("silent") == std::string::npos; }));
    first.abort("enough");
  }
  server.reset();
  EXPECT_TRUE(eventually(second, [&] { return !end_of(second).empty(); }));
  EXPECT_EQ(end_of(second), "CommError: rank 0 ended the group: enough");
}

// The network may fail before a rank has read the addresses of its peers' hosts.
TEST(Watchdog, APeerThatWasNeverHeardOfIsCutOffWithTheStore) {
  for (const std::errc failure :
       {std::errc::timed_out, std::errc::host_unreachable, std::errc::network_unreachable}) {
    const auto store = c10::make_intrusive<FaultyStore>();
    store->failure = failure;
    auto options = quick();
    options.host_timeout = milliseconds(50);
    Watchdog watchdog(store, 1, 2, options);
    watchdog.started(barrier(), 3);
    EXPECT_TRUE(eventually(watchdog, [&] { return !end_of(watchdog).empty(); }));
    EXPECT_THAT(end_of(watchdog),
                HasSubstr("CommError: rank 0 died or is cut off (no sign of life"));
    EXPECT_THAT(end_of(watchdog), HasSubstr("the store's host does not answer)"));
  }
}

// The store's host answers, and only the process that served the store has ended; or no host is to
// be probed.
TEST(Watchdog, AStoreThatWasResetIsNotCutOff) {
  for (const bool is_reset : {true, false}) {
    const auto store = c10::make_intrusive<FaultyStore>();
    store->failure = is_reset ? std::errc::connection_reset : std::errc::timed_out;
    auto options = quick();
    if (is_reset) options.host_timeout = milliseconds(1);
    Watchdog watchdog(store, 1, 2, options);
    for (int look = 0; look < 3; ++look) watchdog.wait_for_news(seconds(10));
    EXPECT_THAT(watchdog.store_trouble(), testing::StartsWith("rank 1 lost the store: "));
    EXPECT_EQ(end_of(watchdog), "");
  }
}

TEST(Watchdog, EndsItsOwnCallsEvenIfTheStoreTakesNoReason) {
  for (const bool differs : {true, false}) {
    const auto store = c10::make_intrusive<FaultyStore>();
    write_status(*store, 0, "7 3 0 0 3 is in a call\nall_reduce[float32, 4]");
    std::atomic<bool> closed = false;
    auto options = quick();
    options.disconnected = [&](int) { return closed.load(); };
    Watchdog watchdog(store, 1, 2, options);
    EXPECT_TRUE(eventually(watchdog, [&] { return !watchdog.explanation().empty(); }));
    store->full = true;
    if (differs) watchdog.started(barrier(), 3);
    closed = !differs;
    EXPECT_TRUE(eventually(watchdog, [&] { return !end_of(watchdog).empty(); }));
    EXPECT_THAT(end_of(watchdog),
                testing::StartsWith(differs ? "CommError: the ranks call different operations: "
                                              "rank 1 called barrier as number 3, rank 0 called "
                                              "all_reduce[float32, 4]"
                                            : "CommError: rank 0 died (no sign of life for "));
  }
}

const char* const kStoreIsGone = "rank 0 died or left the group (its store is gone)";

TEST(Watchdog, AStoreThatIsGoneTookItsRankAlong) {
  const auto store = c10::make_intrusive<FaultyStore>();
  auto options = quick();
  options.disconnected = [](int rank) { return rank == 0; };
  Watchdog watchdog(store, 1, 2, options);
  store->gone = true;
  EXPECT_TRUE(eventually(watchdog, [&] { return watchdog.explanation() == kStoreIsGone; }));
  EXPECT_TRUE(eventually(watchdog, [&] { return watchdog.departed(0) == kStoreIsGone; }));
  watchdog.abort("enough");
  EXPECT_EQ(end_of(watchdog), "CommError: enough");
}

TEST(Watchdog, AStoreThatMissesItsDeadlineIsGone) {
  const auto store = c10::make_intrusive<FaultyStore>();
  auto options = quick();
  options.disconnected = [](int rank) { return rank == 0; };
  Watchdog watchdog(store, 1, 2, options);
  store->late = true;
  EXPECT_TRUE(eventually(watchdog, [&] { return watchdog.explanation() == kStoreIsGone; }));
  EXPECT_EQ(watchdog.store_trouble(), "rank 1 lost the store: waited 30 s");
}

struct Absence {
  const char* name;
  int store_rank;
  std::vector<int> left;    // ranks that leave while the store exists
  std::vector<int> closed;  // ranks whose connections close after it is gone
  std::optional<int> peer;
  const char* explanation;
};

class Absences : public testing::TestWithParam<Absence> {};
const char* const kNobodyKnows =
    " died or left the group (its connection is closed, and the store, which would know, is gone)";
const std::string kTwo = str("rank 2", kNobodyKnows);
const std::string kThree = str("rank 3", kNobodyKnows);
INSTANTIATE_TEST_SUITE_P(
    Watchdog, Absences,
    testing::Values(
        Absence{"AfterTheHostLeft", 0, {0}, {0, 2}, std::nullopt, kTwo.c_str()},
        Absence{"OfTheHostAlone", 0, {}, {0}, std::nullopt, kStoreIsGone},
        Absence{"OfTheHostFirst",
                0,
                {},
                {0, 2},
                std::nullopt,
                "rank 0 died or left the group (its store is gone); the connections to rank 2 are "
                "closed, too"},
        Absence{"OfWhoIsWaitedFor", 0, {}, {0, 2, 3}, 3, kThree.c_str()},
        Absence{"InAGroupWithoutTheHost", -1, {}, {2}, std::nullopt, kTwo.c_str()},
        Absence{"OfSeveral",
                -1,
                {},
                {2, 3},
                std::nullopt,
                "ranks 2, 3 died or left the group (their connections are closed, and the store, "
                "which would know, is gone)"}),
    [](const auto& info) { return info.param.name; });

TEST_P(Absences, AreToldAsFarAsTheyAreKnown) {
  const Absence& absence = GetParam();
  const auto store = c10::make_intrusive<FaultyStore>();
  auto options = quick();
  options.store_rank = absence.store_rank;
  options.disconnected = [&](int rank) {
    return std::find(absence.closed.begin(), absence.closed.end(), rank) != absence.closed.end();
  };
  for (int rank : {0, 2, 3}) {
    const bool left =
        std::find(absence.left.begin(), absence.left.end(), rank) != absence.left.end();
    write_status(*store, rank,
                 str("7 3 0 ", left ? 1 : 0, " last completed barrier (operation 3)"));
  }
  Watchdog watchdog(store, 1, 4, options);
  EXPECT_TRUE(eventually(watchdog, [&] { return watchdog.missing(3).empty(); }));
  store->gone = true;
  EXPECT_TRUE(eventually(watchdog, [&] {
    return watchdog.explanation(absence.peer) == absence.explanation;
  })) << watchdog.explanation(absence.peer);
  EXPECT_EQ(watchdog.store_trouble(), "rank 1 lost the store: connection closed");
  if (absence.peer) return;
  // A collective that no rank has failed ends in the same way, a little later.
  EXPECT_TRUE(eventually(watchdog, [&] { return watchdog.departed(3) == absence.explanation; }))
      << watchdog.departed(3);
}

TEST(Watchdog, AStoreThatFailsOnceIsNotGone) {
  const auto store = c10::make_intrusive<FaultyStore>();
  Watchdog watchdog(store, 1, 2, quick());
  store->full = true;
  EXPECT_TRUE(eventually(watchdog, [&] { return !watchdog.store_trouble().empty(); }));
  EXPECT_EQ(watchdog.store_trouble(), "rank 1 cannot use the store: no room for another key");
  EXPECT_EQ(watchdog.explanation(), "");
  store->full = false;
  Watchdog(store, 0, 2, quick()).abort("enough");
  EXPECT_TRUE(eventually(watchdog, [&] { return !end_of(watchdog).empty(); }));
  EXPECT_EQ(end_of(watchdog), "CommError: rank 0 ended the group: enough");
  EXPECT_TRUE(eventually(watchdog, [&] { return watchdog.store_trouble().empty(); }));
}

// A rank that is blocked in a call to the store must not count as dead.
TEST(Watchdog, HasAConnectionOfItsOwn) {
  const int fd = listen_on("127.0.0.1", 0);
  const auto server = testing_support::tcp_store(0, fd);
  const auto client = testing_support::tcp_store(1, fd);
  std::thread blocked;
  {
    Watchdog first(server, 0, 2, quick());
    Watchdog second(client, 1, 2, quick());
    for (int look = 0; look < 3; ++look) second.wait_for_news(seconds(10));
    blocked = std::thread([&] { client->wait({"a key"}, seconds(30)); });
    second.started(barrier(), 0);
    EXPECT_TRUE(eventually(first, [&] { return first.missing(0).empty(); }));
    EXPECT_EQ(first.whereabouts(), "rank 1 is in barrier (operation 0)");
  }
  server->set("a key", "a value");
  blocked.join();
}

// Counts the posted receives, which never complete.
class SilentBackend final : public c10d::Backend {
 public:
  class Receive final : public c10d::Work {
   public:
    bool wait(milliseconds) override {
      ++looks;
      return false;
    }
    void abort() override {}
    std::atomic<int>& looks;
    explicit Receive(std::atomic<int>& looks) : Work(0, c10d::OpType::RECV), looks(looks) {}
  };

  SilentBackend() : c10d::Backend(0, 2) {}
  const std::string getBackendName() const override { return "silent"; }
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>&, int, int) override {
    ++receives;
    return c10::make_intrusive<Receive>(looks);
  }

  std::atomic<int> receives = 0;
  std::atomic<int> looks = 0;
};

TEST(Gloo, AsksASilentPeersConnectionWithOneReceive) {
  const auto library = c10::make_intrusive<SilentBackend>();
  const auto store = c10::make_intrusive<c10d::HashStore>();
  write_status(*store, 1, "7 3 0 0 is in barrier (operation 3)");
  const auto backend = gloo::adapt(library, store, {.timeout = seconds(1)});
  auto& watchdog = *backend->watchdog();
  EXPECT_TRUE(eventually(watchdog, [&] { return library->looks >= 3; }));
  EXPECT_EQ(library->receives, 1);
}

TEST(Watchdog, DoesNotWaitForAStoreThatDoesNotAnswer) {
  const auto store = c10::make_intrusive<FaultyStore>();
  const auto start = Clock::now();
  {
    Watchdog watchdog(store, 1, 2, quick());
    store->mute = true;
    store->muted.wait();
    EXPECT_TRUE(eventually(watchdog, [&] { return watchdog.missing(0) == "rank 0"; }));
    watchdog.abort("enough");
    EXPECT_EQ(end_of(watchdog), "CommError: enough");
  }
  EXPECT_LT(seconds_since(start), 5);
  store->released.count_down();
  store->answered.wait();
}

}  // namespace
}  // namespace lockstep::comm
