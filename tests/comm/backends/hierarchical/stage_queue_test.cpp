// The stages of collectives in a group of two levels: which calls each level gets, why they end,
// and what peers read about them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <lockstep/comm/diagnostics/watchdog_state.h>
#include <lockstep/comm/waiting/store_waits.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <tests/comm/backends/hierarchical/told_levels.h>
#include <tests/support/messages.h>

namespace lockstep::comm {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::IsEmpty;
using testing_support::message_of;
using testing_support::ToldRank;

const char* const kSumOfFour = "all_reduce[float32, 4] (operation 0)";

// --- The stages ----------------------------------------------------------------------------------

struct StagedCall {
  CallKind kind;
  std::vector<std::int64_t> input;  // sizes of the tensors; none if there is no such tensor
  std::vector<std::int64_t> output;
  ReduceOp op = ReduceOp::kSum;
  int root = -1;
  torch::ScalarType type = torch::kFloat32;
};

struct Staged {
  int rank;
  StagedCall call;
  std::vector<std::string> local;  // the calls that each level gets
  std::vector<std::string> leaders;
};

std::vector<Staged> staged_calls() {
  using Kind = CallKind;
  const auto half = ReduceOp::premultiplied_sum(0.5);
  const StagedCall barrier{Kind::kBarrier, {}, {}};
  const StagedCall mean{Kind::kAllReduce, {}, {4}, ReduceOp::kAverage};
  const StagedCall halves{Kind::kAllReduce, {}, {4}, half, -1, torch::kBFloat16};
  const StagedCall greatest{Kind::kAllReduce, {}, {4}, ReduceOp::kMax, -1, torch::kInt64};
  const StagedCall nothing{Kind::kAllReduce, {}, {0}};
  const StagedCall from_1{Kind::kBroadcast, {}, {4}, ReduceOp::kSum, 1};
  const StagedCall from_2{Kind::kBroadcast, {}, {4}, ReduceOp::kSum, 2};
  const StagedCall to_1{Kind::kReduce, {4}, {}, half, 1};
  const StagedCall to_3{Kind::kReduce, {4}, {}, ReduceOp::kMin, 3};
  const StagedCall gather{Kind::kAllGather, {2}, {8}};
  const StagedCall scatter{Kind::kReduceScatter, {8}, {2}, ReduceOp::kAverage, -1, torch::kFloat16};
  return {
      {0, barrier, {"barrier", "barrier"}, {"barrier"}},
      {1, barrier, {"barrier", "barrier"}, {}},
      {0,
       mean,
       {"reduce[float32, 4, root 0]", "broadcast[float32, 4, root 0]"},
       {"all_reduce[float32, 4]"}},
      {1, mean, {"reduce[float32, 4, root 0]", "broadcast[float32, 4, root 0]"}, {}},
      {0,
       halves,
       {"reduce[float32, 4, premultiplied sum by 0.5, root 0]", "broadcast[float32, 4, root 0]"},
       {"all_reduce[float32, 4]"}},
      {0,
       greatest,
       {"reduce[int64, 4, max, root 0]", "broadcast[int64, 4, root 0]"},
       {"all_reduce[int64, 4, max]"}},
      {0, nothing, {"barrier", "barrier"}, {"barrier"}},
      {0, from_1, {"broadcast[float32, 4, root 1]"}, {"broadcast[float32, 4, root 0]"}},
      {1, from_1, {"broadcast[float32, 4, root 1]"}, {}},
      {0, from_2, {"broadcast[float32, 4, root 0]"}, {"broadcast[float32, 4, root 1]"}},
      {1, from_2, {"broadcast[float32, 4, root 0]"}, {}},
      {0,
       to_1,
       {"reduce[float32, 4, premultiplied sum by 0.5, root 0]", "broadcast[float32, 4, root 0]"},
       {"reduce[float32, 4, root 0]"}},
      {0, to_3, {"reduce[float32, 4, min, root 0]"}, {"reduce[float32, 4, min, root 1]"}},
      {0,
       gather,
       {"gather[float32, 2, root 0]", "broadcast[float32, 8, root 0]"},
       {"all_gather[float32, 4]"}},
      {1, gather, {"gather[float32, 2, root 0]", "broadcast[float32, 8, root 0]"}, {}},
      {0,
       scatter,
       {"reduce[float32, 8, root 0]", "scatter[float32, 2, root 0]"},
       {"reduce_scatter[float32, 4]"}},
  };
}

// Ends every operation that has begun, until the collective has ended.
bool lets_end(ToldRank& rank, const std::shared_ptr<Work>& work) {
  for (int round = 0; round < 10 && !work->is_completed(); ++round) {
    for (const auto& level : {rank.local, rank.leaders}) {
      for (const auto& operation : level->operations) operation->has_ended = true;
    }
  }
  return work->is_completed() && work->error() == nullptr;
}

TEST(HierarchicalStages, AreTheSameCallsOnAllRanksOfALevel) {
  for (const Staged& each : staged_calls()) {
    ToldRank rank(each.rank);
    const StagedCall& call = each.call;
    SCOPED_TRACE(str("rank ", each.rank, ", ", call_name(call.kind), " with root ", call.root));
    const auto tensor = [&](const std::vector<std::int64_t>& sizes) {
      return sizes.empty() ? torch::Tensor() : torch::ones(sizes, call.type);
    };
    const auto work =
        rank.caller.start(call.kind, tensor(call.input), tensor(call.output), call.op, call.root);
    EXPECT_TRUE(lets_end(rank, work));
    EXPECT_EQ(rank.local->descriptions, each.local);
    EXPECT_EQ(rank.leaders->descriptions, each.leaders);
    EXPECT_THAT(rank.flat->descriptions, IsEmpty());
  }
}

// Each level counts its own calls. Only stages of equal shapes match, and a barrier has none.
TEST(HierarchicalStages, AreNumberedOnEachLevelAndHaveTheShapeOfTheirCall) {
  ToldRank leader(0);
  comm::Collective call;
  call.description.kind = CallKind::kAllReduce;
  call.description.type = detail::DataType::kFloat32;
  call.description.count = 6;
  call.description.shape = {.dimensions = 2, .sizes = {2, 3}};
  call.output = torch::ones({6});
  EXPECT_TRUE(lets_end(leader, leader.caller.start(call)));
  EXPECT_TRUE(lets_end(leader, leader.caller.start(CallKind::kBarrier, {}, {})));
  EXPECT_TRUE(lets_end(leader, leader.start_sum()));
  EXPECT_THAT(
      leader.local->descriptions,
      ElementsAre("reduce[float32, 2x3, root 0]", "broadcast[float32, 2x3, root 0]", "barrier",
                  "barrier", "reduce[float32, 4, root 0]", "broadcast[float32, 4, root 0]"));
  EXPECT_THAT(leader.local->numbers, ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(leader.leaders->descriptions,
              ElementsAre("all_reduce[float32, 2x3]", "barrier", "all_reduce[float32, 4]"));
  EXPECT_THAT(leader.leaders->numbers, ElementsAre(0, 1, 2));
}

// The levels leave the tensors as they are, so that only the division by four ranks is seen.
TEST(HierarchicalStages, OfAnAverageAreDividedOnceByTheLeader) {
  for (const int rank : {0, 1}) {
    for (const ReduceOp op : {ReduceOp::kAverage, ReduceOp::kSum}) {
      for (const auto type : {torch::kFloat32, torch::kBFloat16}) {
        ToldRank caller(rank);
        const auto tensor = torch::full({4}, 8, type);
        EXPECT_TRUE(lets_end(caller, caller.caller.start(CallKind::kAllReduce, {}, tensor, op)));
        const bool divides = rank == 0 && op == ReduceOp::kAverage;
        EXPECT_TRUE(tensor.equal(torch::full({4}, divides ? 2 : 8, type))) << rank;
      }
    }
  }
}

// --- Why they end --------------------------------------------------------------------------------

// The first reason is that of the group, also if it becomes known at the deadline of a wait.
TEST(HierarchicalEnds, AtADeadlineWithTheReasonThatTheNetworkGives) {
  ToldRank member(1);
  member.flat->checks_before_failure = 2;  // at the start and at the first look of the wait
  member.flat->failure = std::make_exception_ptr(CommError("rank 3 died"));
  const auto sum = member.start_sum();
  std::string text;
  try {
    sum->wait(milliseconds(0));
  } catch (const TimeoutError& error) {
    text = str("a timeout: ", error.what());
  } catch (const CommError& error) {
    text = error.what();
  }
  EXPECT_EQ(text, "rank 3 died");
  EXPECT_THAT(member.local->reasons, ElementsAre("rank 3 died"));
  EXPECT_THAT(member.flat->reasons, ElementsAre("rank 3 died"));
}

TEST(HierarchicalEnds, AtAnAbortWithTheReasonThatTheNetworkKnows) {
  ToldRank member(1);
  const auto sum = member.start_sum();
  member.flat->failure = std::make_exception_ptr(CommError("rank 3 died"));
  member.caller.backend->abort("enough");
  EXPECT_EQ(message_of<CommError>([&] { sum->wait(); }), "rank 3 died");
  EXPECT_THAT(member.local->reasons, ElementsAre("rank 3 died"));
  EXPECT_THAT(member.flat->reasons, ElementsAre("enough", "rank 3 died"));
}

// Without a watchdog, the ranks have no other names.
TEST(HierarchicalEnds, AtADeadlineOfAllItsLevels) {
  ToldRank leader(0);
  const auto sum = leader.start_sum();
  const std::string text = message_of<TimeoutError>([&] { sum->wait(milliseconds(20)); });
  EXPECT_EQ(text, str("rank 0 waited 0.02 s in ", kSumOfFour, " over hierarchical"));
  for (const auto& level : {leader.local, leader.leaders, leader.flat}) {
    EXPECT_THAT(level->reasons, ElementsAre(text));
  }
  EXPECT_EQ(message_of<TimeoutError>([&] { leader.caller.backend->check(); }), text);
}

// --- What peers and messages tell of them --------------------------------------------------------

const std::vector<int> kNamesOfFour{8, 3, 5, 7};

// Rank 1 of four, whose peers have the statuses.
struct WatchedRank {
  explicit WatchedRank(const std::vector<std::pair<int, watching::Status>>& statuses) {
    for (const auto& [rank, status] : statuses) {
      store->set(str("status/", rank), store_bytes(status.to_text()));
    }
    auto dog = std::make_unique<Watchdog>(
        store, 1, 4,
        WatchdogOptions{
            .beat = std::chrono::minutes(1), .world_ranks = kNamesOfFour, .store_rank = -1});
    watchdog = dog.get();
    member.emplace(1, std::chrono::seconds(30), std::move(dog));
  }
  bool looks_until(const std::function<bool()>& condition) {
    const Deadline deadline(std::chrono::seconds(10));
    while (!condition() && !deadline.expired()) {
      watchdog->hurry();
      watchdog->wait_for_news(milliseconds(100));
    }
    return condition();
  }
  std::string own_words() {
    if (!store->check({"status/1"})) return "";
    return watching::Status::from_text(store_text(store->get("status/1"))).words;
  }

  const c10::intrusive_ptr<c10d::HashStore> store = c10::make_intrusive<c10d::HashStore>();
  Watchdog* watchdog = nullptr;
  std::optional<ToldRank> member;
};

TEST(HierarchicalEnds, AtADeadlineNameWhoHasNotCalled) {
  for (const bool all_called : {false, true}) {
    const watching::Status waits{.beat = 7, .number = 0, .words = "is in its call"};
    const watching::Status late{.beat = 7, .words = "computes"};
    WatchedRank rank({{0, waits}, {2, all_called ? waits : late}, {3, waits}});
    EXPECT_TRUE(rank.looks_until(
        [&] { return rank.watchdog->missing(0) == (all_called ? "" : "rank 5"); }));
    const auto sum = rank.member->start_sum();
    EXPECT_TRUE(rank.looks_until([&] { return rank.own_words() == str("is in ", kSumOfFour); }));
    const std::string text = message_of<TimeoutError>([&] { sum->wait(milliseconds(20)); });
    EXPECT_EQ(text, str("rank 3 waited 0.02 s in ", kSumOfFour, " over hierarchical",
                        all_called ? ", which all ranks have called; rank 8 is in its call, rank 5 "
                                     "is in its call, rank 7 is in its call"
                                   : " for rank 5; rank 8 is in its call, rank 5 computes, rank 7 "
                                     "is in its call"));
    EXPECT_EQ(message_of<TimeoutError>([&] { rank.watchdog->throw_if_ended(); }), text)
        << "the other ranks end, too";
    EXPECT_THAT(rank.member->local->reasons, ElementsAre(text));
    EXPECT_TRUE(
        rank.looks_until([&] { return rank.own_words() == str("last completed ", kSumOfFour); }));
  }
}

TEST(HierarchicalEnds, WhenARankHasLeftThatHasNotCalled) {
  const watching::Status waits{.beat = 7, .number = 0};
  const watching::Status left{.beat = 7, .number = -1, .left = true};
  WatchedRank rank({{0, waits}, {2, left}, {3, waits}});
  rank.member->caller.backend->check();  // without a call, a rank may leave
  const auto sum = rank.member->start_sum();
  EXPECT_EQ(message_of<CommError>([&] { sum->wait(); }),
            str("rank 5 left the group while rank 3 was in ", kSumOfFour));
}

TEST(HierarchicalEnds, IsToldToPeersAsTheEndOfACall) {
  WatchedRank rank({});
  const auto sum = rank.member->start_sum();
  EXPECT_TRUE(lets_end(*rank.member, sum));
  EXPECT_TRUE(
      rank.looks_until([&] { return rank.own_words() == str("last completed ", kSumOfFour); }));
}

// --- Waits that move other operations ------------------------------------------------------------

// Ends an operation of a level each time it is advanced.
class Ender final : public Progressing {
 public:
  explicit Ender(std::shared_ptr<testing_support::Told> level) : level_(std::move(level)) {}
  bool advance() noexcept override {
    for (const auto& operation : level_->operations) {
      if (!std::exchange(operation->has_ended, true)) return true;
    }
    return false;
  }

 private:
  const std::shared_ptr<testing_support::Told> level_;
};

TEST(HierarchicalWaits, AdvanceTheOtherOperationsOfTheirRank) {
  const auto progress = std::make_shared<Progress>();
  ToldRank member(1, std::chrono::seconds(30), nullptr, progress);
  const auto ender = std::make_shared<Ender>(member.local);
  progress->add(ender);
  const auto sum = member.start_sum();
  sum->wait(std::chrono::seconds(20));
  EXPECT_EQ(sum->error(), nullptr);
  EXPECT_EQ(member.local->operations.size(), 2U);
}

TEST(HierarchicalWaits, AreHelpedByOtherWaitsOnlyWhileASumIsUnderWay) {
  for (const bool fails : {false, true}) {
    const auto progress = std::make_shared<Progress>();
    ToldRank member(1, std::chrono::seconds(30), nullptr, progress);
    EXPECT_FALSE(progress->needs_a_hand());
    EXPECT_FALSE(progress->advance(nullptr));
    const auto sum = member.start_sum();
    EXPECT_TRUE(progress->needs_a_hand());
    EXPECT_FALSE(progress->advance(nullptr)) << "nothing can move";
    member.local->operations.at(0)->has_ended = true;
    EXPECT_TRUE(progress->advance(nullptr));
    EXPECT_EQ(member.local->operations.size(), 2U);
    if (fails) {
      member.flat->failure = std::make_exception_ptr(CommError("rank 3 died"));
    } else {
      member.local->operations.at(1)->has_ended = true;
    }
    EXPECT_TRUE(progress->advance(nullptr));
    EXPECT_FALSE(progress->needs_a_hand());
    EXPECT_FALSE(progress->advance(nullptr));
    EXPECT_EQ(sum->error() != nullptr, fails);
  }
}

}  // namespace
}  // namespace lockstep::comm
