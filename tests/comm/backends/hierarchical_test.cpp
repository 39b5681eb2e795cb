// Groups of two levels, on simulated hosts on one machine.
#include <lockstep/comm/backends/hierarchical/hierarchical.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <exception>
#include <functional>
#include <latch>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/comm/backends/shm/handshake.h>
#include <lockstep/comm/backends/shm/shm_backend.h>
#include <lockstep/comm/backends/single/single_backend.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <tests/comm/backends/gloo_groups.h>
#include <tests/comm/backends/hierarchical/told_levels.h>
#include <tests/support/messages.h>
#include <tests/support/moment.h>

namespace lockstep::comm {
namespace {

using hierarchical::Parts;
using hierarchical::RankLocation;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;
using testing_support::Caller;
using testing_support::connect_gloo;
using testing_support::connect_store;
using testing_support::kDown;
using testing_support::kTwoByTwo;
using testing_support::kUp;
using testing_support::Moment;
using testing_support::no_errors;
using testing_support::run_processes;
using testing_support::run_threads;
using testing_support::ToldRank;

using testing_support::RankLocations;

// Hosts with two, one and two ranks. The ranks of a host are not consecutive.
const RankLocations kMixed{{0, 0}, {1, 0}, {2, 0}, {0, 1}, {2, 1}};
const RankLocations kOneHost{{0, 0}, {0, 1}, {0, 2}};

std::vector<int> ranks_of(const RankLocations& locations,
                          const std::function<bool(const RankLocation&)>& are_meant) {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < locations.size(); ++rank) {
    if (are_meant(locations[rank])) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

std::shared_ptr<Backend> connect_local(const c10::intrusive_ptr<c10d::Store>& store,
                                       const std::string& kind, const RankLocations& locations,
                                       int rank, milliseconds timeout,
                                       std::shared_ptr<Progress> progress) {
  const RankLocation me = locations[static_cast<std::size_t>(rank)];
  const auto ranks =
      ranks_of(locations, [&](const RankLocation& each) { return each.host == me.host; });
  const int size = static_cast<int>(ranks.size());
  const std::string name = str("host", me.host);
  if (size == 1) return single::make(torch::kCPU);
  if (kind == "gloo") return connect_gloo(store, name, me.local_rank, size, timeout);
  TextExchange exchange(c10::make_intrusive<c10d::PrefixStore>(name, store), me.local_rank, size,
                        timeout, ranks);
  std::string why_not;
  auto engine =
      shm::shake_hands(exchange, {.world_ranks = ranks, .progress = std::move(progress)}, why_not);
  if (!engine) throw Error(why_not);
  return shm::make(std::move(engine), timeout);
}

Caller join(const c10::intrusive_ptr<c10d::Store>& store, const std::string& local_kind,
            const RankLocations& locations, int rank, milliseconds timeout) {
  const RankLocation me = locations[static_cast<std::size_t>(rank)];
  const auto leaders =
      ranks_of(locations, [](const RankLocation& each) { return each.local_rank == 0; });
  Parts parts;
  parts.rank = rank;
  parts.locations = locations;
  parts.timeout = timeout;
  parts.progress = std::make_shared<Progress>();
  parts.local = connect_local(store, local_kind, locations, rank, timeout, parts.progress);
  if (me.local_rank == 0 && leaders.size() > 1) {
    parts.leaders =
        connect_gloo(store, "leaders", me.host, static_cast<int>(leaders.size()), timeout);
  }
  const int size = static_cast<int>(locations.size());
  parts.flat = connect_gloo(store, "flat", rank, size, timeout);
  return Caller(hierarchical::make(std::move(parts)), rank, size);
}

std::vector<std::string> run(const std::string& local_kind, const RankLocations& locations,
                             const std::function<void(Caller&)>& body) {
  const int fd = listen_on("127.0.0.1", 0);
  return run_threads(static_cast<int>(locations.size()), [&](int rank) {
    const auto store = connect_store(rank, fd);
    Caller caller = join(store, local_kind, locations, rank, seconds(30));
    body(caller);
    caller.barrier();
  });
}

struct Case {
  const char* name;
  std::string local;
  RankLocations locations;
};

class Hierarchical : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Layouts, Hierarchical,
                         testing::Values(Case{"TwoByTwoShm", "shm", kTwoByTwo},
                                         Case{"TwoByTwoGloo", "gloo", kTwoByTwo},
                                         Case{"MixedShm", "shm", kMixed},
                                         Case{"OneHost", "shm", kOneHost}),
                         [](const auto& info) { return info.param.name; });

TEST_P(Hierarchical, Reduces) {
  const auto errors = run(GetParam().local, GetParam().locations, [](Caller& caller) {
    for (const std::int64_t count : {0, 1, 37}) check_reductions(caller, count);
  });
  EXPECT_EQ(errors, no_errors(static_cast<int>(GetParam().locations.size())));
}

TEST_P(Hierarchical, MovesAndSends) {
  const auto errors = run(GetParam().local, GetParam().locations, [](Caller& caller) {
    for (const auto type : {torch::kFloat32, torch::kInt16, torch::kBFloat16}) {
      for (const std::int64_t count : {1, 1000}) check_moves(caller, count, type);
    }
    for (const std::int64_t count : {1, 300000})
      check_messages(caller, count, /*any_source=*/false);
    auto tensor = torch::ones({4});
    EXPECT_THROW(caller.backend->recv(tensor, std::nullopt, 0), ConfigError);
  });
  EXPECT_EQ(errors, no_errors(static_cast<int>(GetParam().locations.size())));
}

TEST_P(Hierarchical, NamesTheSenderByItsRankInTheWholeGroup) {
  const auto errors = run(GetParam().local, GetParam().locations, [](Caller& caller) {
    std::vector<int> peers;
    std::vector<torch::Tensor> received;
    std::vector<std::shared_ptr<Work>> receives, sends;
    const auto mine = torch::full({3}, caller.rank);
    for (int peer = 0; peer < caller.size; ++peer) {
      if (peer == caller.rank) continue;
      peers.push_back(peer);
      received.push_back(torch::zeros({3}, torch::kInt64));
      receives.push_back(caller.backend->recv(received.back(), peer, 5));
      sends.push_back(caller.backend->send(mine, peer, 5));
    }
    for (const auto& work : sends) work->wait();
    for (std::size_t i = 0; i < peers.size(); ++i) {
      while (!receives[i]->is_completed()) std::this_thread::yield();
      receives[i]->wait();
      EXPECT_EQ(receives[i]->error(), nullptr);
      EXPECT_EQ(receives[i]->source_rank(), peers[i]) << "on rank " << caller.rank;
      testing_support::expect_equal(received[i], torch::full({3}, peers[i]), "a message");
    }
    EXPECT_THAT(testing_support::message_of<ConfigError>(
                    [&] { caller.backend->recv(torch::zeros({3}), std::nullopt, 5); }),
                HasSubstr("recv: the hierarchical backend cannot receive from any rank; name the "
                          "source, or receive in a group made by new_group(ranks, \"gloo\")"));
  });
  EXPECT_EQ(errors, no_errors(static_cast<int>(GetParam().locations.size())));
}

// Symmetric memory has the same place on all ranks of a host. It must not be reduced in place.
TEST_P(Hierarchical, ScattersAReductionFromSymmetricMemory) {
  const auto errors = run(GetParam().local, GetParam().locations, [](Caller& caller) {
    const std::int64_t count = 5000;
    auto given = caller.backend->allocate({caller.size * count}, torch::kFloat32);
    auto own = torch::empty({count});
    for (int round = 0; round < 3; ++round) {
      given.copy_(
          testing_support::values_of(caller.rank + round, caller.size * count, torch::kFloat32));
      const auto before = given.clone();
      caller.start(CallKind::kReduceScatter, given, own)->wait();
      auto expected = torch::zeros({caller.size * count});
      for (int rank = 0; rank < caller.size; ++rank) {
        expected += testing_support::values_of(rank + round, caller.size * count, torch::kFloat32);
      }
      testing_support::expect_equal(
          own, expected.slice(0, caller.rank * count, (caller.rank + 1) * count), "reduce_scatter");
      testing_support::expect_equal(given, before, "what was given");
      caller.barrier();
    }
  });
  EXPECT_EQ(errors, no_errors(static_cast<int>(GetParam().locations.size())));
}

TEST_P(Hierarchical, KeepsSeveralLargeOperationsInFlight) {
  const auto errors = run(GetParam().local, GetParam().locations, [](Caller& caller) {
    auto memory = caller.backend->allocate({3'000'000}, torch::kFloat32);  // more than one piece
    std::vector<torch::Tensor> tensors, sent;
    std::vector<std::shared_ptr<Work>> works;
    for (int i = 0; i < 6; ++i) {
      tensors.push_back(i == 0 ? memory : torch::empty({500'000 * i}));
      tensors.back().fill_(caller.rank + i);
      works.push_back(caller.start(CallKind::kAllReduce, {}, tensors.back(), ReduceOp::kAverage));
      sent.push_back(torch::full({500'000 * i + 1}, caller.rank));
      works.push_back(
          caller.start(CallKind::kBroadcast, {}, sent.back(), ReduceOp::kSum, i % caller.size));
    }
    for (auto work = works.rbegin(); work != works.rend(); ++work) {
      while (!(*work)->is_completed()) std::this_thread::yield();
      EXPECT_EQ((*work)->error(), nullptr);
    }
    for (int i = 0; i < 6; ++i) {
      const float expected = (caller.size - 1) / 2.0F + i;
      if (!torch::allclose(tensors[i], torch::full_like(tensors[i], expected)))
        throw Error("wrong mean");
      if (!torch::equal(sent[i], torch::full_like(sent[i], i % caller.size)))
        throw Error("wrong broadcast");
    }
  });
  EXPECT_EQ(errors, no_errors(static_cast<int>(GetParam().locations.size())));
}

// The root of the first broadcast is a late member, and the root of the second is on the other
// host. Its leader could send the second broadcast across immediately, and the other leader would
// mistake it for the first.
TEST(HierarchicalOrder, IsTheSameAtAllLeaders) {
  std::latch others_have_begun(3);
  const auto errors = run("shm", kTwoByTwo, [&](Caller& caller) {
    auto first = torch::full({1000}, caller.rank), second = torch::full({1000}, 10 * caller.rank);
    if (caller.rank == 1) others_have_begun.wait();
    auto a = caller.start(CallKind::kBroadcast, {}, first, ReduceOp::kSum, 1);
    auto b = caller.start(CallKind::kBroadcast, {}, second, ReduceOp::kSum, 2);
    for (int look = 0; look < 1000; ++look) b->is_completed();
    if (caller.rank != 1) others_have_begun.count_down();
    b->wait();
    a->wait();
    if (!torch::equal(first, torch::full({1000}, 1))) throw Error("wrong first");
    if (!torch::equal(second, torch::full({1000}, 20))) throw Error("wrong second");
  });
  EXPECT_EQ(errors, no_errors(4));
}

TEST_P(Hierarchical, AgreesOnEveryBit) {
  std::vector<torch::Tensor> results(GetParam().locations.size());
  const auto errors = run(GetParam().local, GetParam().locations, [&](Caller& caller) {
    auto tensor = torch::sin(torch::arange(100'003) * (caller.rank + 1)).to(torch::kFloat32);
    caller.all_reduce(tensor, ReduceOp::kAverage);
    results[static_cast<std::size_t>(caller.rank)] = tensor;
  });
  EXPECT_EQ(errors, no_errors(static_cast<int>(GetParam().locations.size())));
  for (const auto& result : results) EXPECT_TRUE(torch::equal(result, results[0]));
}

TEST_P(Hierarchical, AnAbortReachesAllLevels) {
  const int size = static_cast<int>(GetParam().locations.size());
  const auto errors = run(GetParam().local, GetParam().locations, [&](Caller& caller) {
    caller.barrier();
    if (caller.rank == size - 1) caller.backend->abort("the loss is not a number");
    const auto start = Clock::now();
    auto tensor = torch::ones({4});
    EXPECT_THROW(caller.all_reduce(tensor), CommError);
    EXPECT_LT(seconds_since(start), 15);  // the timeout of the group is 30 s
  });
  for (int rank = 0; rank < size; ++rank) {
    EXPECT_THAT(errors[static_cast<std::size_t>(rank)], HasSubstr("the loss is not a number"));
  }
}

// The group's own timeout is much longer.
TEST_P(Hierarchical, AWaitEndsAtTheDeadlineThatItWasGiven) {
  const int size = static_cast<int>(GetParam().locations.size());
  std::latch ended(size - 1);
  const auto errors = run(GetParam().local, GetParam().locations, [&](Caller& caller) {
    if (caller.rank == size - 1) return ended.wait();
    auto tensor = torch::ones({4});
    auto work = caller.start(CallKind::kAllReduce, {}, tensor);
    const auto start = Clock::now();
    EXPECT_THROW(work->wait(milliseconds(200)), TimeoutError);
    const double seconds = seconds_since(start);
    ended.count_down();
    EXPECT_LT(seconds, 15) << "the group's timeout is 30 s";
  });
  for (const auto& error : errors) EXPECT_THAT(error, HasSubstr(" waited 0.2 s in all_reduce"));
}

// A backend that records why it was aborted.
class Ending final : public Backend {
 public:
  const std::string& name() const override { return name_; }
  std::shared_ptr<Work> start(const Collective&) override { throw CommError("the wire is cut"); }
  std::shared_ptr<Work> send(torch::Tensor, int, MessageTag) override { throw Error("not used"); }
  std::shared_ptr<Work> recv(torch::Tensor, std::optional<int>, MessageTag) override {
    throw Error("not used");
  }
  torch::Tensor allocate(at::IntArrayRef, torch::ScalarType) override { throw Error("not used"); }
  void abort(const std::string& reason) override { reason_ = reason; }
  void check() override {}
  const std::string& reason() const { return reason_; }

 private:
  const std::string name_ = "ending";
  std::string reason_;
};

// Otherwise a rank would wait on another level for a rank that has given up.
TEST(HierarchicalFailure, EndsAllLevels) {
  const std::vector<std::shared_ptr<Ending>> levels{
      std::make_shared<Ending>(), std::make_shared<Ending>(), std::make_shared<Ending>()};
  Parts parts{.rank = 0, .locations = kTwoByTwo, .timeout = seconds(30)};
  parts.local = levels[0];
  parts.leaders = levels[1];
  parts.flat = levels[2];
  Caller caller(hierarchical::make(std::move(parts)), 0, 4);
  EXPECT_THROW(caller.barrier(), CommError);
  for (const auto& level : levels) EXPECT_EQ(level->reason(), "the wire is cut");
}

// The reason is that of the caller, not of what fails because of it.
TEST(HierarchicalFailure, ItsFirstReasonIsThatOfAllCalls) {
  const auto level = std::make_shared<Ending>(), flat = std::make_shared<Ending>();
  Parts parts{.rank = 1, .locations = kTwoByTwo, .timeout = seconds(30)};
  parts.local = level;
  parts.flat = flat;
  Caller caller(hierarchical::make(std::move(parts)), 1, 4);
  caller.backend->check();
  caller.backend->abort("enough");
  caller.backend->abort("too late");
  const std::function<void()> calls[] = {[&] { caller.backend->check(); },
                                         [&] { caller.barrier(); },
                                         [&] { caller.all_reduce(torch::ones({4})); },
                                         [&] { caller.backend->allocate({3}, torch::kFloat32); }};
  for (const auto& call : calls) {
    EXPECT_EQ(testing_support::message_of<CommError>(call), "enough");
  }
  EXPECT_EQ(level->reason(), "enough");
  EXPECT_EQ(flat->reason(), "enough");
}

// A sum under way ends with its group.
TEST(HierarchicalFailure, IsThatOfTheCallsUnderWay) {
  ToldRank member(1);
  const auto first = member.start_sum(), second = member.start_sum();
  EXPECT_EQ(first->error(), nullptr);
  member.caller.backend->abort("enough");
  for (const auto& work : {first, second}) {
    EXPECT_TRUE(work->is_completed());
    EXPECT_NE(work->error(), nullptr);
    EXPECT_EQ(testing_support::message_of<CommError>([&] { work->wait(); }), "enough");
  }
}

// A stage may fail because of a rank that the network names a moment later.
TEST(HierarchicalFailure, OfAStageWaitsForTheReasonThatTheNetworkGives) {
  ToldRank member(1);
  const auto first = member.start_sum();
  member.local->operations[0]->has_ended = true;
  member.local->operations[0]->failure =
      std::make_exception_ptr(CommError("the connection is closed"));
  EXPECT_FALSE(first->is_completed());
  EXPECT_EQ(first->error(), nullptr);
  const auto second = member.start_sum();
  EXPECT_THAT(member.local->kinds, testing::ElementsAre(kUp)) << "nothing more is started";
  member.flat->failure = std::make_exception_ptr(CommError("rank 3 died"));
  for (const auto& work : {first, second}) {
    EXPECT_TRUE(work->is_completed());
    EXPECT_EQ(testing_support::message_of<CommError>([&] { work->wait(); }), "rank 3 died");
  }
  EXPECT_EQ(testing_support::message_of<CommError>([&] { member.start_sum(); }), "rank 3 died");
}

// A program may keep the Work for longer than the sum takes.
TEST(HierarchicalFailure, FreesTheTensorsOfASumAsSuccessDoes) {
  for (const bool fails : {false, true}) {
    ToldRank member(1);
    const auto tensor = torch::ones({4});
    const auto work = member.caller.start(CallKind::kAllReduce, {}, tensor);
    EXPECT_GT(tensor.storage().use_count(), 1U);
    member.local->operations[0]->has_ended = true;
    EXPECT_FALSE(work->is_completed());
    if (fails) member.caller.backend->abort("enough");
    member.local->operations[1]->has_ended = true;
    EXPECT_TRUE(work->is_completed());
    EXPECT_EQ(work->error() != nullptr, fails);
    EXPECT_EQ(tensor.storage().use_count(), 1U);
  }
}

// The order on the host is that of the calls, but no operation waits for the end of another.
TEST(HierarchicalOrder, LetsASumBeginOnceTheLastOneHasStartedAllItsStages) {
  ToldRank member(1);
  const auto& operations = member.local->operations;
  const auto first = member.start_sum(), second = member.start_sum();
  EXPECT_THAT(member.local->kinds, testing::ElementsAre(kUp));
  operations[0]->has_ended = true;
  EXPECT_FALSE(first->is_completed());
  EXPECT_THAT(member.local->kinds, testing::ElementsAre(kUp, kDown, kUp));
  operations[2]->has_ended = true;
  EXPECT_FALSE(second->is_completed());
  EXPECT_THAT(member.local->kinds, testing::ElementsAre(kUp, kDown, kUp, kDown));
  EXPECT_TRUE(member.caller.backend->allocate({3}, torch::kFloat32).equal(torch::zeros({3})))
      << "needs no end of a sum, but its place among the calls";
  operations[3]->has_ended = true;
  EXPECT_TRUE(second->is_completed());
  EXPECT_FALSE(first->is_completed());
  operations[1]->has_ended = true;
  EXPECT_TRUE(first->is_completed());
  EXPECT_EQ(first->error(), nullptr);
  EXPECT_EQ(second->error(), nullptr);
  first->wait();
  second->wait(milliseconds(0));
}

TEST(HierarchicalOrder, OfALeaderIsTheSameOnBothOfItsLevels) {
  ToldRank leader(0);
  const auto& up_and_down = leader.local->operations;
  const auto& across = leader.leaders->operations;
  const auto first = leader.start_sum(), second = leader.start_sum();
  EXPECT_EQ(across.size(), 0U);
  up_and_down[0]->has_ended = true;
  EXPECT_FALSE(second->is_completed());
  EXPECT_THAT(leader.leaders->kinds, testing::ElementsAre(CallKind::kAllReduce));
  EXPECT_THAT(leader.local->kinds, testing::ElementsAre(kUp)) << "the first sum is not told yet";
  across[0]->has_ended = true;
  EXPECT_FALSE(second->is_completed());
  EXPECT_THAT(leader.local->kinds, testing::ElementsAre(kUp, kDown, kUp));
  up_and_down[2]->has_ended = true;
  EXPECT_FALSE(second->is_completed());
  EXPECT_EQ(across.size(), 2U);
  EXPECT_EQ(up_and_down.size(), 3U);
  across[1]->has_ended = true;
  up_and_down[1]->has_ended = true;
  EXPECT_TRUE(first->is_completed());
  EXPECT_THAT(leader.local->kinds, testing::ElementsAre(kUp, kDown, kUp, kDown));
  up_and_down[3]->has_ended = true;
  EXPECT_TRUE(second->is_completed());
}

// Memory is allocated by all ranks of a host together, in the order of their calls.
TEST(HierarchicalOrder, OfAnAllocationIsBehindTheStagesOfASum) {
  ToldRank member(1, milliseconds(20));
  const auto sum = member.start_sum();
  EXPECT_THAT(testing_support::message_of<TimeoutError>(
                  [&] { member.caller.backend->allocate({3}, torch::kFloat32); }),
              HasSubstr("rank 1 waited 0.02 s in all_reduce[float32, 4] (operation 0) over "
                        "hierarchical"));
  EXPECT_TRUE(sum->is_completed());
  EXPECT_NE(sum->error(), nullptr);
}

// --- Processes that die --------------------------------------------------------------------------

class HierarchicalFaults : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, HierarchicalFaults,
                         testing::Values(1, 2, 3));  // member, leader, member

TEST_P(HierarchicalFaults, ADeathIsNamedOnBothHostsWithinTwoSeconds) {
  const int victim = GetParam();
  Moment killed;
  const int fd = listen_on("127.0.0.1", 0);
  const auto errors = run_processes(
      4,
      [&](int rank) {
        const auto store = connect_store(rank, fd);
        Caller caller = join(store, "shm", kTwoByTwo, rank, seconds(30));
        auto tensor = torch::ones({100'000});
        caller.all_reduce(tensor, ReduceOp::kAverage);
        if (rank == victim) {
          killed.mark();
          raise(SIGKILL);
        }
        try {
          for (;;) caller.all_reduce(tensor, ReduceOp::kAverage);
        } catch (const CommError& error) {
          throw CommError(str(error.what(), killed.seconds_ago() < 2 ? " in time" : " late"));
        }
      },
      seconds(20));
  close(fd);
  for (int rank = 0; rank < 4; ++rank) {
    if (rank == victim) continue;
    EXPECT_THAT(errors[static_cast<std::size_t>(rank)],
                AllOf(HasSubstr(str("rank ", victim)), HasSubstr("died"), HasSubstr(" in time")));
  }
}

TEST_P(HierarchicalFaults, AStoppedRankIsNamedOnBothHostsAtTheDeadline) {
  const int victim = GetParam();
  const int fd = listen_on("127.0.0.1", 0);
  const auto errors = run_processes(
      4,
      [&](int rank) {
        const auto store = connect_store(rank, fd);
        Caller caller = join(store, "shm", kTwoByTwo, rank, seconds(2));
        auto tensor = torch::ones({1000});
        caller.all_reduce(tensor);
        if (rank == victim) raise(SIGSTOP);
        try {
          caller.all_reduce(tensor);
        } catch (const TimeoutError& error) {
          throw Error(str("TimeoutError: ", error.what()));
        }
      },
      seconds(6));
  close(fd);
  for (int rank = 0; rank < 4; ++rank) {
    if (rank == victim) continue;
    EXPECT_THAT(errors[static_cast<std::size_t>(rank)],
                AllOf(HasSubstr("TimeoutError: "), HasSubstr(str("for rank ", victim, "; ")),
                      HasSubstr("all_reduce[float32, 1000] (operation 1)"),
                      HasSubstr("has been silent for")));
  }
}

}  // namespace
}  // namespace lockstep::comm
