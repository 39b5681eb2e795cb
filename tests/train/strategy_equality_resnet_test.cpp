// Every strategy and schedule trains a ResNet-18 as one process does, and some a ResNet-50.
#include <gtest/gtest.h>

#include <tests/train/strategy_equality.h>

namespace lockstep {
namespace {

using testing_support::expect_equal_lessons;
using testing_support::kEverySchedule;
using testing_support::LearntAlone;

// Two samples in each micro-batch: a pipeline has eight samples, each of two pipelines four.
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
// (StrategyEquality.OfHybrids). Here one with whole backwards stands for the others, and one that
// splits them and has two stages on a rank, because four ranks are slow on two processors.
TEST(StrategyEqualityResNet, OfPipelinesOnRanks) {
  LearntAlone alone("resnet18");
  for (const Schedule schedule : {Schedule::k1F1B, Schedule::kZbV}) {
    expect_equal_lessons(alone, testing_support::rank_way(schedule, kResNetParts));
  }
}

TEST(StrategyEqualityResNet, OfHybrids) {
  LearntAlone alone("resnet18");
  expect_equal_lessons(alone, testing_support::hybrid_way(Schedule::kZbV, kResNetHybridParts));
  expect_equal_lessons(alone, testing_support::hybrid_way(Schedule::k1F1B, kResNetHybridParts,
                                                          /*shards=*/true));
}

// Images have 64x64 pixels. One way of each kind runs, because a step takes a second.
TEST(StrategyEqualityResNet, OfAResNet50) {
  LearntAlone alone("resnet50");
  expect_equal_lessons(alone, testing_support::data_parallel_ways().at(1));
  expect_equal_lessons(alone, testing_support::thread_way(Schedule::kZbV, kResNetParts));
  expect_equal_lessons(alone, testing_support::hybrid_way(Schedule::kZbH1, kResNetHybridParts));
}

}  // namespace
}  // namespace lockstep
