// How ranks find out that they share memory, and why they do not.
#include <lockstep/comm/backends/shm/handshake.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <utility>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <lockstep/comm/rendezvous/forwarding_store.h>
#include <lockstep/comm/rendezvous/text_exchange.h>
#include <lockstep/comm/waiting/store_waits.h>
#include <lockstep/core/error.h>
#include <tests/support/ranks.h>

namespace lockstep::comm {
namespace {

// Changes what a rank writes under one key.
class ChangingStore final : public ForwardingStore<> {
 public:
  using Change = std::function<void(Bytes& text)>;

  ChangingStore(c10::intrusive_ptr<c10d::Store> store, std::string key, Change change)
      : ForwardingStore(std::move(store)), key_(std::move(key)), change_(std::move(change)) {}
  using ForwardingStore::set;
  c10::intrusive_ptr<c10d::Store> clone() override { throw Error("not used"); }
  void set(const std::string& key, const Bytes& value) override {
    Bytes text = value;
    if (key == key_) change_(text);
    ForwardingStore::set(key, text);
  }

 private:
  const std::string key_;
  const Change change_;
};

struct Disturbance {
  const char* key;
  ChangingStore::Change change;
  const char* why_not;  // empty: the ranks share memory
};

TEST(Handshake, EndsAlikeOnAllRanks) {
  using Bytes = ChangingStore::Bytes;
  const Disturbance disturbances[] = {
      {"none", [](Bytes&) {}, ""},
      {"shared-memory announcement/0", [](Bytes& text) { text = store_bytes("nno memory"); },
       "rank 0: no memory"},
      {"shared-memory announcement/0", [](Bytes& text) { text.back() ^= 1U; },
       "rank 1: the segment found is not the one of rank 0: another host"},
      {"shared-memory vote/1", [](Bytes& text) { text = store_bytes("nforbidden"); },
       "rank 1: forbidden"},
      {"shared-memory vote/1", [](Bytes& text) { text.resize(1); },
       "rank 1 lives in another PID namespace"},
      {"shared-memory vote/0", [](Bytes& text) { text.clear(); }, "rank 0: "},
      {"shared-memory watch/1", [](Bytes& text) { text = store_bytes("nno descriptor"); },
       "rank 1: no descriptor"},
  };
  for (const Disturbance& each : disturbances) {
    SCOPED_TRACE(each.why_not);
    const auto plain = c10::make_intrusive<c10d::HashStore>();
    const auto errors = testing_support::run_threads(2, [&](int rank) {
      TextExchange exchange(c10::make_intrusive<ChangingStore>(plain, each.key, each.change), rank,
                            2, std::chrono::seconds(60));
      std::string why_not;
      const auto engine = shm::shake_hands(exchange, {}, why_not);
      EXPECT_EQ(why_not, each.why_not) << "on rank " << rank;
      EXPECT_EQ(engine != nullptr, why_not.empty()) << "on rank " << rank;
      exchange.exchange("end of the test", "");
    });
    EXPECT_EQ(errors, testing_support::no_errors(2));
  }
}

TEST(Handshake, IsNotTriedByMoreRanksThanCanShareMemory) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  TextExchange exchange(store, 0, 257, std::chrono::milliseconds(50));
  std::string why_not;
  EXPECT_EQ(shm::shake_hands(exchange, {}, why_not), nullptr);
  EXPECT_EQ(why_not, "at most 256 ranks share memory, there are 257");
  EXPECT_EQ(store->getNumKeys(), 0);
}

}  // namespace
}  // namespace lockstep::comm
