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

TEST(StrategyEqualityResNet, OfPipelines) {
  LearntAlone alone("resnet18");
  for (const Schedule schedule : kEverySchedule) {
    expect_equal_lessons(alone, testing_support::thread_way(schedule, kResNetParts));
    expect_equal_lessons(alone, testing_support::rank_way(schedule, kResNetParts));
  }
}

TEST(StrategyEqualityResNet, OfHybrids) {
  LearntAlone alone("resnet18");
  for (const Schedule schedule : kEverySchedule) {
    expect_equal_lessons(alone, testing_support::hybrid_way(schedule, kResNetHybridParts));
  }
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
