// Every strategy and schedule trains a ResNet-18 like one process, and some of them a ResNet-50.
// With LOCKSTEP_EXHAUSTIVE, all of them train both nets.
#include <gtest/gtest.h>

#include <tests/train/strategy_equality.h>

namespace lockstep::train {
namespace {

using testing_support::expect_equal_lessons;
using testing_support::kEverySchedule;
using testing_support::LearntAlone;
using testing_support::schedules_or_all;
using testing_support::tests_every_way;

// Two samples per micro-batch: a pipeline has eight samples, each of two pipelines has four.
constexpr int kResNetParts = 4;
constexpr int kResNetHybridParts = 2;

TEST(StrategyEqualityResNet, OfReplicas) {
  LearntAlone alone("resnet18");
  for (const auto& way : testing_support::data_parallel_ways()) expect_equal_lessons(alone, way);
}

TEST(StrategyEqualityResNet, OfPipelinesOnThreads) {
  LearntAlone alone("resnet18");
  for (const Schedule schedule : kEverySchedule) {
    expect_equal_lessons(alone, testing_support::thread_way(schedule, kResNetParts));
  }
}

// All schedules give the same bits, on ranks as on threads (DistributedPipelines), also in a hybrid
// (StrategyEquality.OfHybrids). Two of them represent the others here, because four ranks are slow
// on two processors: one with whole backwards, and one with split backwards and two stages per
// rank.
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
  auto replicas = testing_support::data_parallel_ways();
  if (!tests_every_way()) replicas = {replicas.at(1)};
  for (const auto& way : replicas) expect_equal_lessons(alone, way);
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
