// Every strategy and schedule trains a ResNet-18 like one process, and some of them a ResNet-50.
// With LOCKSTEP_EXHAUSTIVE, all of their combinations train both nets. StrategyEquality tests them
// always, on smaller nets.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tests/train/strategy_equality.h>

namespace lockstep::train {
namespace {

using testing_support::EqualityWay;
using testing_support::expect_equal_lessons;
using testing_support::LearntAlone;
using testing_support::schedules_or_all;
using testing_support::tests_every_way;

// Two samples per micro-batch: a pipeline has eight samples, each of two pipelines has four.
constexpr int kResNetParts = 4;
constexpr int kResNetHybridParts = 2;

/// The ways whose names are `chosen`, or all ways if every way is tested.
std::vector<EqualityWay> replicas_or_all(const std::vector<std::string>& chosen) {
  auto ways = testing_support::data_parallel_ways();
  if (tests_every_way()) return ways;
  std::erase_if(ways, [&](const EqualityWay& way) {
    return std::find(chosen.begin(), chosen.end(), way.name) == chosen.end();
  });
  EXPECT_EQ(ways.size(), chosen.size()) << "a name is wrong";
  return ways;
}

TEST(StrategyEqualityResNet, OfReplicas) {
  LearntAlone alone("resnet18");
  for (const auto& way :
       replicas_or_all({"dp, gathered", "dp by weights, on each", "ddp", "zero1"})) {
    expect_equal_lessons(alone, way);
  }
}

// All schedules give the same bits, on ranks as on threads (DistributedPipelines), also in a hybrid
// (StrategyEquality.OfHybrids). Each of them therefore runs once, on threads or on ranks.
TEST(StrategyEqualityResNet, OfPipelinesOnThreads) {
  LearntAlone alone("resnet18");
  for (const Schedule schedule :
       schedules_or_all({Schedule::kGPipe, Schedule::kInterleaved, Schedule::kZbH1})) {
    expect_equal_lessons(alone, testing_support::thread_way(schedule, kResNetParts));
  }
}

// One schedule has whole backwards, and one has split backwards and two stages per rank.
TEST(StrategyEqualityResNet, OfPipelinesOnRanks) {
  LearntAlone alone("resnet18");
  for (const Schedule schedule : schedules_or_all({Schedule::k1F1B, Schedule::kZbV})) {
    expect_equal_lessons(alone, testing_support::rank_way(schedule, kResNetParts));
  }
}

TEST(StrategyEqualityResNet, OfHybrids) {
  LearntAlone alone("resnet18");
  for (const Schedule schedule : schedules_or_all({Schedule::kZbV})) {
    expect_equal_lessons(alone, testing_support::hybrid_way(schedule, kResNetHybridParts));
  }
  for (const Schedule schedule : schedules_or_all({Schedule::k1F1B})) {
    expect_equal_lessons(alone, testing_support::hybrid_way(schedule, kResNetHybridParts,
                                                            /*shards=*/true));
  }
}

// Images have 64x64 pixels. Only one way of each of three kinds runs, because a step takes a
// second.
TEST(StrategyEqualityResNet, OfAResNet50) {
  LearntAlone alone("resnet50");
  for (const auto& way : replicas_or_all({"dp, on each"})) expect_equal_lessons(alone, way);
  for (const Schedule schedule : schedules_or_all({Schedule::kZbV})) {
    expect_equal_lessons(alone, testing_support::thread_way(schedule, kResNetParts));
  }
  for (const Schedule schedule : schedules_or_all({Schedule::kZbH1})) {
    expect_equal_lessons(alone, testing_support::hybrid_way(schedule, kResNetHybridParts));
  }
  for (const Schedule schedule : schedules_or_all({})) {
    expect_equal_lessons(alone, testing_support::rank_way(schedule, kResNetParts));
    expect_equal_lessons(alone, testing_support::hybrid_way(schedule, kResNetHybridParts,
                                                            /*shards=*/true));
  }
}

}  // namespace
}  // namespace lockstep::train
