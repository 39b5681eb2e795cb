// If ranks call different collectives, all of them end with the same error message.
#include <lockstep/comm/diagnostics/fingerprints.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <lockstep/comm/rendezvous/forwarding_store.h>
#include <lockstep/core/error.h>
#include <tests/support/messages.h>
#include <tests/support/ranks.h>
#include <tests/support/scoped_environment.h>

namespace lockstep::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using testing_support::no_errors;
using testing_support::run_threads;

CallDescription call_of(CallKind kind, std::uint64_t count, int root = -1) {
  CallDescription call;
  call.kind = kind;
  call.type = detail::DataType::kFloat32;
  call.count = count;
  call.shape = {1, {static_cast<std::uint32_t>(count)}};
  call.root = root;
  return call;
}

std::vector<std::string> run(int size, const std::function<void(int, Fingerprints&)>& body,
                             milliseconds timeout = seconds(20)) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  return run_threads(size, [&](int rank) {
    std::vector<int> world;
    for (int each = 0; each < size; ++each) world.push_back(each);
    const TextExchange exchange(store, rank, size, timeout, world);
    Fingerprints fingerprints(exchange, timeout);
    body(rank, fingerprints);
  });
}

TEST(Fingerprints, LetEqualCallsPassAndLeaveNothingBehind) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto errors = run_threads(3, [&](int rank) {
    const TextExchange exchange(store, rank, 3, seconds(20), {0, 1, 2});
    Fingerprints fingerprints(exchange, seconds(20));
    for (std::uint64_t number = 0; number < 100; ++number) {
      fingerprints.compare(number, call_of(CallKind::kAllReduce, number + 1), {});
    }
  });
  EXPECT_EQ(errors, no_errors(3));
  EXPECT_LE(store->getNumKeys(), 2 * 3);
}

struct Difference {
  const char* name;
  CallDescription first;
  CallDescription second;
  const char* text;
};

class Differences : public ::testing::TestWithParam<Difference> {};
INSTANTIATE_TEST_SUITE_P(
    Fingerprints, Differences,
    ::testing::Values(
        Difference{"Kind", call_of(CallKind::kBroadcast, 4, 0), call_of(CallKind::kAllReduce, 4),
                   "rank 1 called all_reduce[float32, 4] as number 17, rank 0 called "
                   "broadcast[float32, 4, root 0]"},
        Difference{"Count", call_of(CallKind::kAllReduce, 4), call_of(CallKind::kAllReduce, 5),
                   "rank 1 called all_reduce[float32, 5] as number 17, rank 0 called "
                   "all_reduce[float32, 4]"},
        Difference{"Root", call_of(CallKind::kReduce, 4, 2), call_of(CallKind::kReduce, 4, 1),
                   "rank 1 called reduce[float32, 4, root 1] as number 17, rank 0 called "
                   "reduce[float32, 4, root 2]"}),
    [](const auto& info) { return info.param.name; });

TEST_P(Differences, EndAllRanksWithTheSameWords) {
  const auto errors = run(3, [](int rank, Fingerprints& fingerprints) {
    fingerprints.compare(16, call_of(CallKind::kAllReduce, 1), {});
    fingerprints.compare(17, rank == 1 ? GetParam().second : GetParam().first, {});
  });
  for (const auto& error : errors) {
    EXPECT_EQ(error, lockstep::str("the ranks call different operations: ", GetParam().text));
  }
}

TEST(Fingerprints, NameWhoCallsNothing) {
  const auto errors = run(
      3,
      [](int rank, Fingerprints& fingerprints) {
        if (rank != 2) fingerprints.compare(0, call_of(CallKind::kAllReduce, 4), {});
      },
      seconds(1));
  EXPECT_THAT(errors[0],
              HasSubstr("rank 0 called all_reduce[float32, 4] as number 0 and waited 1 s for "
                        "rank 2, which called nothing"));
  EXPECT_EQ(errors[2], "");
}

TEST(Fingerprints, NameTheRanksOfTheWorld) {
  const auto run_named = [](milliseconds timeout,
                            const std::function<void(int, Fingerprints&)>& body) {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    return run_threads(3, [&](int rank) {
      const TextExchange exchange(store, rank, 3, seconds(20), {4, 7, 9});
      Fingerprints fingerprints(exchange, timeout);
      body(rank, fingerprints);
    });
  };
  EXPECT_EQ(run_named(milliseconds(200),
                      [](int rank, Fingerprints& fingerprints) {
                        if (rank > 0) return;
                        fingerprints.compare(3, call_of(CallKind::kAllReduce, 4), {});
                      })[0],
            "rank 4 called all_reduce[float32, 4] as number 3 and waited 0.2 s for ranks 7, 9, "
            "which called nothing");
  for (const int first : {1, 2}) {
    EXPECT_EQ(run_named(milliseconds(200),
                        [first](int rank, Fingerprints& fingerprints) {
                          if (rank >= first)
                            fingerprints.compare(3, call_of(CallKind::kBarrier, 0), {});
                        })[2],
              str("rank 9 called barrier as number 3 and waited 0.2 s for ",
                  first == 1 ? "rank 4" : "ranks 4, 7", ", which called nothing"));
  }
  for (const std::string& error : run_named(seconds(20), [](int rank, Fingerprints& fingerprints) {
         fingerprints.compare(0, call_of(CallKind::kBroadcast, 4, rank == 2 ? 1 : 0), {});
       })) {
    EXPECT_EQ(error,
              "the ranks call different operations: rank 9 called broadcast[float32, 4, root 1] as "
              "number 0, rank 4 called broadcast[float32, 4, root 0]");
  }
}

TEST(Fingerprints, EndWithTheGroup) {
  const auto errors = run(2, [](int rank, Fingerprints& fingerprints) {
    if (rank == 0) {
      fingerprints.compare(0, call_of(CallKind::kBarrier, 0),
                           [] { throw CommError("rank 1 died"); });
    }
  });
  EXPECT_EQ(errors[0], "rank 1 died");
}

// A store whose process has ended.
class EndedStore final : public ForwardingStore<> {
 public:
  using ForwardingStore::ForwardingStore;
  using ForwardingStore::set;
  c10::intrusive_ptr<c10d::Store> clone() override { throw Error("not used"); }
  void set(const std::string&, const Bytes&) override {
    throw std::runtime_error("connection closed\nframe #0");
  }
};

TEST(Fingerprints, SayThatTheStoreIsLost) {
  const auto store = c10::make_intrusive<EndedStore>(c10::make_intrusive<c10d::HashStore>());
  TextExchange exchange(store, 1, 2, seconds(20), {4, 7});
  Fingerprints fingerprints(exchange, seconds(20));
  EXPECT_EQ(testing_support::message_of<CommError>(
                [&] { fingerprints.compare(3, call_of(CallKind::kAllReduce, 4), {}); }),
            "rank 7 lost the store of rank 0 before all_reduce[float32, 4] as number 3 (did rank 0 "
            "end?): connection closed");
  EXPECT_EQ(
      testing_support::message_of<CommError>([&] { exchange.exchange("monitored barrier", ""); }),
      "rank 7 lost the store of rank 0 during the monitored barrier (did rank 0 end?): connection "
      "closed");
}

TEST(Fingerprints, AreWantedByTheEnvironment) {
  testing_support::ScopedEnvironment environment;
  environment.set("LOCKSTEP_DEBUG", "detail");
  EXPECT_TRUE(fingerprints_wanted());
  environment.set("LOCKSTEP_DEBUG", "off");
  EXPECT_FALSE(fingerprints_wanted());
  environment.set("LOCKSTEP_DEBUG", "much");
  EXPECT_THROW(fingerprints_wanted(), ConfigError);
  environment.set("LOCKSTEP_DEBUG", std::nullopt);
  EXPECT_FALSE(fingerprints_wanted());
}

}  // namespace
}  // namespace lockstep::comm
