// The store through which the ranks of Gloo and NCCL find each other.
#include <lockstep/comm/backends/c10d/group_store.h>

#include <gtest/gtest.h>

#include <chrono>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <lockstep/comm/waiting/store_waits.h>
#include <lockstep/core/error.h>
#include <tests/support/messages.h>

namespace lockstep::c10d_adapter {
namespace {

using comm::store_bytes;
using std::chrono::milliseconds;
using testing_support::message_of;

TEST(GroupStore, ForgetsWhatItsRankHasWritten) {
  const auto plain = c10::make_intrusive<c10d::HashStore>();
  const auto store = c10::make_intrusive<GroupStore>(plain, [] {});
  plain->set("of another rank", store_bytes("x"));
  store->set("a", store_bytes("1"));
  EXPECT_EQ(comm::store_text(store->compareSet("b", store_bytes(""), store_bytes("2"))), "2");
  EXPECT_EQ(store->add("c", 3), 3);
  EXPECT_EQ(comm::store_text(store->get("a")), "1");
  EXPECT_EQ(comm::store_text(store->get("of another rank")), "x");
  store->forget();
  for (const char* key : {"a", "b", "c"}) EXPECT_FALSE(plain->check({key})) << key;
  EXPECT_TRUE(plain->check({"of another rank"}));
  plain->set("a", store_bytes("of the next group"));
  store->forget();
  EXPECT_TRUE(plain->check({"a"})) << "forgotten once";
}

TEST(GroupStore, LooksAroundWhileItWaits) {
  const auto plain = c10::make_intrusive<c10d::HashStore>();
  int looks = 0;
  const auto store = c10::make_intrusive<GroupStore>(plain, [&] {
    if (++looks == 1000) plain->set("late", store_bytes("v"));
    if (looks == 3000) throw CommError("rank 1 died");
  });
  store->setTimeout(milliseconds(20));
  EXPECT_EQ(store->getTimeout(), milliseconds(20));
  EXPECT_EQ(message_of<TimeoutError>([&] { store->get("k"); }),
            "no peer wrote k into the store for 0.02 s");
  EXPECT_GT(looks, 0);
  EXPECT_EQ(message_of<TimeoutError>([&] { store->wait({"k", "l"}, milliseconds(5)); }),
            "no peer wrote k, l into the store for 0.005 s");
  looks = 999;
  store->setTimeout(std::chrono::seconds(20));
  EXPECT_EQ(comm::store_text(store->get("late")), "v");
  looks = 2999;
  EXPECT_EQ(message_of<CommError>([&] { store->get("k"); }), "rank 1 died");
}

TEST(GroupStore, WaitsWithoutLookingAroundIfThereIsNothingToSee) {
  const auto plain = c10::make_intrusive<c10d::HashStore>();
  const auto store = c10::make_intrusive<GroupStore>(plain);
  EXPECT_EQ(message_of<TimeoutError>([&] { store->wait({"k"}, milliseconds(5)); }),
            "no peer wrote k into the store for 0.005 s");
  store->setTimeout(milliseconds(0));
  EXPECT_EQ(message_of<TimeoutError>([&] { store->wait({"k", "l"}); }),
            "no peer wrote k, l into the store for 0 s");
  plain->set("k", store_bytes("v"));
  store->wait({"k"});
  EXPECT_EQ(comm::store_text(store->get("k")), "v") << "a key that is there needs no time";
}

// LibTorch reads the ids of several ranks together.
TEST(GroupStore, GetsSeveralValuesOnceAllAreThere) {
  const auto plain = c10::make_intrusive<c10d::HashStore>();
  int looks = 0;
  const auto store = c10::make_intrusive<GroupStore>(plain, [&] {
    if (++looks == 10) plain->set("b", store_bytes("2"));
  });
  plain->set("a", store_bytes("1"));
  const auto values = store->multiGet({"b", "a"});
  ASSERT_EQ(values.size(), 2U);
  EXPECT_EQ(comm::store_text(values[0]), "2");
  EXPECT_EQ(comm::store_text(values[1]), "1");
  EXPECT_EQ(looks, 10);
}

// Its timeout is not that of the store below, which other code of this rank uses.
TEST(GroupStore, KeepsItsTimeoutToItself) {
  const auto plain = c10::make_intrusive<c10d::HashStore>();
  plain->setTimeout(milliseconds(7000));
  const auto store = c10::make_intrusive<GroupStore>(plain);
  EXPECT_EQ(store->getTimeout(), milliseconds(7000));
  store->setTimeout(milliseconds(20));
  EXPECT_EQ(store->getTimeout(), milliseconds(20));
  EXPECT_EQ(plain->getTimeout(), milliseconds(7000));
  EXPECT_TRUE(plain->hasExtendedApi());
  EXPECT_FALSE(store->hasExtendedApi());
}

TEST(GroupStore, HasClonesThatLookAroundAndForgetTheirOwnKeys) {
  const auto plain = c10::make_intrusive<c10d::HashStore>();
  const auto store = c10::make_intrusive<GroupStore>(plain, [] { throw CommError("rank 1 died"); });
  const auto copy = store->clone();
  EXPECT_EQ(message_of<CommError>([&] { copy->wait({"k"}, milliseconds(5000)); }), "rank 1 died");
  store->set("k", store_bytes("1"));
  copy->set("l", store_bytes("2"));
  store->forget();
  EXPECT_FALSE(plain->check({"k"}));
  EXPECT_TRUE(plain->check({"l"}));
}

}  // namespace
}  // namespace lockstep::c10d_adapter
