// Groups made from groups; ranks are threads.
#include <lockstep/comm/group/process_group.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <latch>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <lockstep/comm/group/connect.h>
#include <lockstep/comm/rendezvous/forwarding_store.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <tests/comm/tensors.h>
#include <tests/support/groups.h>
#include <tests/support/messages.h>

namespace lockstep::comm {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using testing_support::message_of;
using namespace testing_support;

class Subgroups : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, Subgroups, ::testing::Values("shm", "gloo", "hierarchical"),
                         [](const auto& info) { return info.param; });

void require_sum(ProcessGroup& group, int mine, int expected, const char* what) {
  auto tensor = torch::full({5}, mine);
  group.all_reduce(tensor);
  require_equal(tensor, torch::full({5}, expected), what);
}

TEST_P(Subgroups, HaveTheirOwnRanks) {
  const auto errors = run_group(4, GetParam(), [](ProcessGroup world) {
    // In a different order than in the world.
    auto group = world.new_group({3, 1});
    EXPECT_EQ(group.has_value(), world.rank() % 2 == 1);
    if (group) {
      EXPECT_EQ(group->rank(), world.rank() == 3 ? 0 : 1);
      EXPECT_EQ(group->size(), 2);
      const bool one_host = world.backend() != "hierarchical";
      EXPECT_EQ(group->local_rank(), one_host ? group->rank() : 0);
      EXPECT_EQ(group->local_size(), one_host ? 2 : 1);
      EXPECT_EQ(group->world_ranks(), (std::vector<int>{3, 1}));
      EXPECT_EQ(group->timeout(), world.timeout());
      EXPECT_EQ(group->backend(), one_host ? world.backend() : "gloo");
      require_sum(*group, world.rank(), 4, "new_group");
      auto tensor = torch::full({2}, world.rank());
      group->broadcast(tensor, 0);
      require_equal(tensor, torch::full({2}, 3), "broadcast of the group's rank 0");
    }
    auto alone = world.new_group({2});
    EXPECT_EQ(alone.has_value(), world.rank() == 2);
    if (alone) {
      EXPECT_EQ(alone->backend(), "single");
    }
    world.barrier();
  });
  EXPECT_EQ(errors, no_errors(4));
}

TEST_P(Subgroups, OfASplitAreOrderedByTheirKeys) {
  const auto errors = run_group(4, GetParam(), [](ProcessGroup world) {
    auto group = world.split(world.rank() / 2, -world.rank());
    ASSERT_TRUE(group);
    if (world.backend() == "hierarchical") {
      EXPECT_EQ(group->backend(), "shm");  // each color is one host
    }
    EXPECT_EQ(group->world_ranks(),
              world.rank() < 2 ? (std::vector<int>{1, 0}) : (std::vector<int>{3, 2}));
    auto none = world.split(world.rank() == 0 ? -1 : 0);
    EXPECT_EQ(none.has_value(), world.rank() != 0);
    if (none) require_sum(*none, world.rank(), 6, "all but rank 0");
    world.barrier();
  });
  EXPECT_EQ(errors, no_errors(4));
}

TEST_P(Subgroups, NestAndOverlap) {
  const auto errors = run_group(4, GetParam(), [](ProcessGroup world) {
    auto row = *world.split(world.rank() / 2);
    auto column = *world.split(world.rank() % 2);
    auto inner = row.new_group({1, 0});  // nested group
    require_sum(row, world.rank(), world.rank() < 2 ? 1 : 5, "row");
    require_sum(column, world.rank(), world.rank() % 2 == 0 ? 2 : 4, "column");
    require_sum(*inner, world.rank(), world.rank() < 2 ? 1 : 5, "inner");
    EXPECT_EQ(inner->world_ranks()[0], world.rank() / 2 * 2 + 1);
    world.barrier();
  });
  EXPECT_EQ(errors, no_errors(4));
}

// Each rank waits for its groups in a different order: a wait in one must advance the others.
TEST_P(Subgroups, MoveWhileAnotherIsWaitedFor) {
  const auto errors = run_group(3, GetParam(), [](ProcessGroup world) {
    auto left = world.new_group({0, 1});
    auto right = world.new_group({1, 2});
    auto both = world.new_group({0, 2});
    std::vector<ProcessGroup> mine;
    for (const auto& group : {left, right, both}) {
      if (group) mine.push_back(*group);
    }
    for (int i = 0; i < 20; ++i) {
      Tensors tensors;
      std::vector<WorkPtr> works;
      for (auto& group : mine) {
        tensors.push_back(torch::full({50000}, world.rank()));
        works.push_back(group.async_all_reduce(tensors.back()));
      }
      const std::size_t first = static_cast<std::size_t>(world.rank() + i) % 2;
      works[first]->wait();
      works[1 - first]->wait();
      for (std::size_t g = 0; g < mine.size(); ++g) {
        const int sum = mine[g].world_ranks()[0] + mine[g].world_ranks()[1];
        require_equal(tensors[g], torch::full({50000}, sum), "sum");
      }
    }
    world.barrier();
  });
  EXPECT_EQ(errors, no_errors(3));
}

TEST_P(Subgroups, AreRefusedWhereRanksGiveDifferentLists) {
  const auto errors = run_group(2, GetParam(), [](ProcessGroup world) {
    world.new_group(world.rank() == 0 ? std::vector<int>{0, 1} : std::vector<int>{1, 0});
  });
  EXPECT_THAT(
      errors,
      Each(std::string("new_group: rank 1 gave ranks 1, 0, rank 0 gave 0, 1; give all the same")));
}

TEST_P(Subgroups, TakeTheBackendThatAllName) {
  const auto errors = run_group(2, GetParam(), [](ProcessGroup world) {
    auto group = *world.new_group({1, 0}, "gloo");
    EXPECT_EQ(group.backend(), "gloo");
    require_sum(group, world.rank(), 1, "over gloo");
    EXPECT_EQ(group.new_group({0, 1})->backend(), "gloo") << "as its parent";
    EXPECT_THAT(message_of<ConfigError>([&] { world.new_group({0, 1}, "mpi"); }),
                StartsWith(lockstep::str("rank ", world.rank(),
                                         ": new_group: backend must be one of auto")));
    world.barrier();
    world.new_group({0, 1}, world.rank() == 0 ? std::optional<std::string>("gloo") : std::nullopt);
  });
  EXPECT_THAT(errors,
              Each(std::string("new_group: rank 1 gave ranks 0, 1, rank 0 gave 0, 1 over gloo; "
                               "give all the same")));
}

TEST_P(Subgroups, OutliveTheirParent) {
  const auto errors = run_group(2, GetParam(), [](ProcessGroup world) {
    std::optional<ProcessGroup> group;
    {
      auto parent = *world.new_group({0, 1});
      group = parent.new_group({0, 1});
    }
    require_sum(*group, 1, 2, "grandchild");
    group->barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST_P(Subgroups, OfOneKeyKeepTheOrderOfTheirParent) {
  const auto errors = run_group(4, GetParam(), [](ProcessGroup world) {
    auto group = world.split(3, world.rank() % 2);
    ASSERT_TRUE(group);
    EXPECT_EQ(group->world_ranks(), (std::vector<int>{0, 2, 1, 3}));
    require_sum(*group, world.rank(), 6, "all ranks");
    world.barrier();
  });
  EXPECT_EQ(errors, no_errors(4));
}

TEST_P(Subgroups, CountRootsObjectsAndMessagesByTheirOwnRanks) {
  using Texts = std::vector<std::string>;
  const auto errors = run_group(4, GetParam(), [](ProcessGroup world) {
    if (auto group = world.new_group({3, 1})) {
      const bool first = group->rank() == 0;
      const std::string own = lockstep::str(world.rank());
      EXPECT_EQ(group->all_gather_object(own), (Texts{"3", "1"}));
      EXPECT_EQ(group->gather_object(own, 1), first ? Texts() : (Texts{"3", "1"}));
      EXPECT_EQ(group->broadcast_object(own, 0), "3");
      EXPECT_EQ(group->scatter_object(first ? Texts() : Texts{"to 3", "to 1"}, 1), "to " + own);
      auto tensor = torch::full({2}, world.rank());
      if (first) {
        group->send(tensor, 1);
      } else {
        EXPECT_EQ(group->recv(tensor), 0) << "the sender's rank in the group";
        require_equal(tensor, torch::full({2}, 3), "a message");
      }
    }
    world.barrier();
  });
  EXPECT_EQ(errors, no_errors(4));
}

TEST_P(Subgroups, NameTheRanksOfTheWorldInRefusals) {
  std::latch seen(2);
  const auto errors = run_group(4, GetParam(), [&](ProcessGroup world) {
    if (auto group = world.new_group({3, 1})) {
      const bool first = group->rank() == 0;
      const std::string own = lockstep::str("rank ", world.rank(), ": ");
      EXPECT_EQ(message_of<ConfigError>([&] { group->broadcast(torch::ones({2}), 2); }),
                own + "broadcast: root must be from 0 to 1, got 2");
      EXPECT_EQ(message_of<ConfigError>([&] { group->new_group({0, 2}); }),
                own + "new_group: ranks must be different and from 0 to 1, got 0, 2");
      EXPECT_EQ(message_of<ConfigError>([&] {
                  group->new_group(first ? std::vector<int>{0, 1} : std::vector<int>{1, 0});
                }),
                "new_group: rank 1 gave ranks 1, 0, rank 3 gave 0, 1; give all the same");
      for (const int root : {0, 1}) {
        const std::vector<std::string> objects(group->rank() == root ? 3 : 0, "object");
        EXPECT_EQ(message_of<ConfigError>([&] { group->scatter_object(objects, root); }),
                  lockstep::str("rank ", root == 0 ? 3 : 1,
                                ": scatter_object: got 3 objects, expected 2, one for each rank"));
      }
      if (first) {
        EXPECT_THAT(message_of<TimeoutError>(
                        [&] { group->monitored_barrier(std::chrono::milliseconds(200)); }),
                    StartsWith("rank 3 waited 0.2 s for rank 1 of 2 in the monitored barrier"));
      }
      seen.arrive_and_wait();
    }
    world.barrier();
  });
  EXPECT_EQ(errors, no_errors(4));
}

TEST_P(Subgroups, NameTheRanksOfTheWorldThatCallDifferentOperations) {
  std::latch seen(2);
  const auto errors = run_group(4, GetParam(), [&](ProcessGroup world) {
    if (auto group = world.new_group({3, 1})) {
      const auto message =
          message_of<CommError>([&] { group->all_reduce(torch::ones({4 + group->rank()})); });
      for (const char* text :
           {"rank 3", "rank 1", "all_reduce[float32, 4]", "all_reduce[float32, 5]"}) {
        EXPECT_THAT(message, HasSubstr(text));
      }
      seen.arrive_and_wait();
    }
    world.barrier();
  });
  EXPECT_EQ(errors, no_errors(4));
}

TEST(SubgroupMessages, OfAnotherSizeNameTheRanksOfTheWorld) {
  std::latch seen(2);
  const auto errors = run_group(4, "shm", [&](ProcessGroup world) {
    if (auto group = world.new_group({3, 1})) {
      const auto message = message_of<CommError>([&] {
        if (group->rank() == 0) {
          group->send(torch::ones({2}), 1);
        } else {
          group->recv(torch::ones({3}), 0);
        }
        group->barrier();
      });
      EXPECT_THAT(message, HasSubstr("point-to-point mismatch: rank 3 sent 2 of float32 to rank 1, "
                                     "which receives 3 of float32"));
      seen.arrive_and_wait();
    }
    world.barrier();
  });
  EXPECT_EQ(errors, no_errors(4));
}

TEST_P(Subgroups, NameTheRankOfTheWorldThatIsMissing) {
  std::latch seen(2);
  const auto errors = run_group(4, GetParam(), [&](ProcessGroup world) {
    if (auto group = world.new_group({3, 1})) {
      if (group->rank() == 0) {
        const auto work = group->async_all_reduce(torch::ones({4}));
        EXPECT_THAT(message_of<TimeoutError>([&] { work->wait(std::chrono::milliseconds(200)); }),
                    AllOf(StartsWith("rank 3 waited 0.2 s in all_reduce[float32, 4]"),
                          HasSubstr(" for rank 1")));
      }
      seen.arrive_and_wait();
    }
    world.barrier();
  });
  EXPECT_EQ(errors, no_errors(4));
}

TEST(SubgroupMessages, OfUnevenSplitsOverGlooNameTheRanksOfTheWorld) {
  std::latch seen(2);
  const auto errors = run_group(4, "gloo", [&](ProcessGroup world) {
    if (auto group = world.new_group({3, 1})) {
      using Splits = std::vector<std::int64_t>;
      const bool gives_more = group->rank() == 0;
      const auto message = message_of<CommError>([&] {
        group->all_to_all_single(torch::zeros({3}), torch::ones({gives_more ? 4 : 3}),
                                 gives_more ? Splits{1, 2} : Splits{2, 1},
                                 gives_more ? Splits{1, 3} : Splits{2, 1});
      });
      EXPECT_THAT(message, HasSubstr("rank 3 gives rank 1 3 elements in all_to_all[float32, with "
                                     "splits] (operation 0), which expects 2"));
      seen.arrive_and_wait();
    }
    world.barrier();
  });
  EXPECT_EQ(errors, no_errors(4));
}

TEST_P(Subgroups, HaveNamesOfTheirOwnInTheFlightRecorder) {
  const auto errors = run_group(4, GetParam(), [](ProcessGroup world) {
    auto pair = world.new_group({3, 1});
    auto all = *world.split(7);
    auto inner = pair ? pair->new_group({1, 0}) : std::nullopt;
    std::vector<std::string> expected;
    if (inner) {
      pair->barrier();
      inner->barrier();
      expected = {"world/0", "world/0/0"};
    }
    all.barrier();
    world.barrier();
    for (const char* name : {"world/1.7", "world"}) expected.emplace_back(name);
    std::vector<std::string> names;
    for (const RecordedCall& each : world.recorded_calls(Clock::time_point::min())) {
      EXPECT_EQ(describe(each.call), "barrier");
      EXPECT_EQ(each.number, 0U);
      names.push_back(each.group);
    }
    EXPECT_EQ(names, expected);
    world.barrier();
  });
  EXPECT_EQ(errors, no_errors(4));
}

TEST(JoinStore, MakesGroupsThatMoveEachOther) {
  auto store = c10::make_intrusive<c10d::HashStore>();
  const auto errors = run_threads(2, [&](int rank) {
    const auto part = [&](const char* name) {
      return join_store(c10::make_intrusive<c10d::PrefixStore>(name, store), rank, 2,
                        {.timeout = std::chrono::seconds(30)});
    };
    auto a = part("a");
    auto b = part("b");
    EXPECT_EQ(a.backend(), "shm");
    auto x = torch::full({100000}, 1);
    auto y = torch::full({100000}, 1);
    auto first = a.async_all_reduce(x);
    auto second = b.async_all_reduce(y);
    (rank == 0 ? first : second)->wait();
    (rank == 0 ? second : first)->wait();
    require_equal(x + y, torch::full({100000}, 4), "sums");
    a.barrier();
    b.barrier();
    std::set<std::string> names;  // in the one flight recorder of this rank
    for (const RecordedCall& each : a.recorded_calls(Clock::time_point::min())) {
      names.insert(each.group);
    }
    EXPECT_THAT(names, ElementsAre(StartsWith("store/0."), StartsWith("store/0.")));
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(JoinStore, NamesRanksAsTheEnvironmentDoes) {
  auto store = c10::make_intrusive<c10d::HashStore>();
  const auto errors = run_threads(2, [&](int rank) {
    auto group = join_store(store, rank, 2,
                            {.timeout = std::chrono::seconds(30),
                             .environment = WorkerEnvironment{.rank = rank + 4, .world_size = 8}});
    EXPECT_EQ(group.rank(), rank);
    EXPECT_EQ(group.world_ranks(), (std::vector<int>{4, 5}));
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
  EXPECT_THROW(join_store(store, 2, 2, {}), ConfigError);
}

// A store in which this rank cannot write names that begin with `full`.
class FullStore final : public ForwardingStore<> {
 public:
  FullStore(c10::intrusive_ptr<c10d::Store> store, std::string full)
      : ForwardingStore(std::move(store)), full_(std::move(full)) {}
  using ForwardingStore::set;
  c10::intrusive_ptr<c10d::Store> clone() override {
    return c10::make_intrusive<FullStore>(store().clone(), full_);
  }
  void set(const std::string& key, const Bytes& value) override {
    if (key.starts_with(full_)) throw Error("the store is full");
    ForwardingStore::set(key, value);
  }

 private:
  const std::string full_;
};

TEST(JoinStore, TellsAllRanksThatOneCannotConnectOverGloo) {
  const auto plain = c10::make_intrusive<c10d::HashStore>();
  const auto start = Clock::now();
  const auto errors = run_threads(3, [&](int rank) {
    c10::intrusive_ptr<c10d::Store> store = plain;
    if (rank == 1) store = c10::make_intrusive<FullStore>(plain, "gloo/");  // for its addresses
    join_store(store, rank, 3, {.backend = "gloo", .timeout = std::chrono::seconds(60)});
  });
  EXPECT_THAT(errors,
              Each(AllOf(HasSubstr("rank 1: cannot connect the ranks over Gloo on 127.0.0.1: "),
                         HasSubstr("the store is full"), Not(HasSubstr("rank 0: cannot")),
                         Not(HasSubstr("rank 2: cannot")))));
  EXPECT_LT(seconds_since(start), 30) << "ranks 0 and 2 waited until their deadline";
}

TEST(JoinStore, TellsAllRanksThatOneCannotShareMemory) {
  const auto plain = c10::make_intrusive<c10d::HashStore>();
  const auto start = Clock::now();
  const auto errors = run_threads(3, [&](int rank) {
    c10::intrusive_ptr<c10d::Store> store = plain;
    if (rank == 1) store = c10::make_intrusive<FullStore>(plain, "shared-memory vote/");
    join_store(store, rank, 3, {.backend = "shm", .timeout = std::chrono::seconds(60)});
  });
  EXPECT_THAT(errors, ElementsAre("rank 1: the store is full", "the store is full",
                                  "rank 1: the store is full"));
  EXPECT_LT(seconds_since(start), 30) << "ranks 0 and 2 waited until their deadline";
}

TEST(JoinStore, TellsAllRanksThatOneHasNoSuchDevice) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto start = Clock::now();
  const auto errors = run_threads(3, [&](int rank) {
    ProcessGroupOptions options{.timeout = std::chrono::seconds(60)};
    if (rank == 1) options.device = torch::Device(torch::kCUDA, 100);
    join_store(store, rank, 3, options);
  });
  EXPECT_THAT(errors, Each(HasSubstr("rank 1: device cuda:100 is not there")));
  EXPECT_LT(seconds_since(start), 30) << "ranks 0 and 2 waited until their deadline";
}

TEST(JoinStore, RefusesWhatItCannotJoin) {
  const c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::HashStore>();
  const auto refusal = [&](int rank, int size, const ProcessGroupOptions& options) {
    return message_of<ConfigError>([&] { join_store(store, rank, size, options); });
  };
  EXPECT_EQ(refusal(-1, 2, {}), "join_store: rank must be from 0 to 1, got -1");
  EXPECT_EQ(refusal(0, 0, {}), "join_store: size must be at least 1, got 0");
  EXPECT_EQ(refusal(0, 2, {.timeout = std::chrono::milliseconds(0)}),
            "init_process_group: timeout (ms) must be greater than 0, got 0");
  EXPECT_EQ(refusal(0, 2, {.device = torch::Device(torch::kCUDA)}),
            "init_process_group: device must name a GPU, as in cuda:0");
  const auto errors = run_threads(2, [&](int rank) {
    join_store(store, rank, 2,
               {.timeout = std::chrono::seconds(30), .host_id = lockstep::str("host ", rank)});
  });
  EXPECT_THAT(errors, Each(std::string("join_store: ranks on several hosts need a TCPStore, which "
                                       "tells the way between them")));
}

// A launcher's store survives a restart of all ranks.
TEST(JoinStore, AnAttemptDoesNotMeetTheKeysOfTheOneBefore) {
  auto store = c10::make_intrusive<c10d::HashStore>();
  const auto join = [&](int rank, int attempt, std::chrono::milliseconds timeout) {
    return join_store(store, rank, 2,
                      {.timeout = timeout,
                       .environment = WorkerEnvironment{
                           .rank = rank, .world_size = 2, .restart_count = attempt}});
  };
  EXPECT_THROW(join(0, 0, std::chrono::milliseconds(100)), TimeoutError) << "rank 1 does not come";
  const auto errors =
      run_threads(2, [&](int rank) { join(rank, 1, std::chrono::seconds(30)).barrier(); });
  EXPECT_EQ(errors, no_errors(2));
}

}  // namespace
}  // namespace lockstep::comm
