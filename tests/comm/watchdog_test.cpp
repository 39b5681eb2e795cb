// What watchdogs of several ranks learn from one store.
#include <lockstep/comm/watchdog.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

WatchdogOptions quick() { return {.beat = milliseconds(20)}; }

// Looks again and again, as a wait does.
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
    { const Watchdog second(store, 1, 2, quick()); }
    EXPECT_TRUE(eventually(first, [&] { return first.explanation() == "rank 1 left the group"; }));
    EXPECT_THAT(first.whereabouts(), HasSubstr("rank 1 has called nothing yet and left the group"));
    EXPECT_EQ(end_of(first), "");
  }
  EXPECT_EQ(store->getNumKeys(), 0);
}

// A rank that wrote once and then never again.
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
  // It may be stopped: that is no error, but it is told.
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
  std::atomic<bool> mute = false;
  std::latch muted{1};
  std::latch released{1};
  std::latch answered{1};

 private:
  void answer() {
    if (gone) throw Error("connection closed");
    if (!mute.exchange(false)) return;
    muted.count_down();
    released.wait();
    answered.count_down();
  }
  c10::intrusive_ptr<c10d::HashStore> store_ = c10::make_intrusive<c10d::HashStore>();
};

TEST(Watchdog, AStoreThatIsGoneTookItsRankAlong) {
  const auto store = c10::make_intrusive<FaultyStore>();
  auto options = quick();
  options.disconnected = [](int rank) { return rank == 0; };
  Watchdog watchdog(store, 1, 2, options);
  store->gone = true;
  EXPECT_TRUE(eventually(
      watchdog, [&] { return watchdog.explanation() == "rank 0 died (its store is gone)"; }));
  EXPECT_TRUE(eventually(
      watchdog, [&] { return watchdog.departed(0) == "rank 0 died (its store is gone)"; }));
  watchdog.abort("enough");
  EXPECT_EQ(end_of(watchdog), "CommError: enough");
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
}  // namespace lockstep
