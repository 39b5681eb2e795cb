// Every strategy and schedule trains small nets like one process: compares the gradients after one
// step and the weights after five. The micro-batches have uneven sizes.
#include <gtest/gtest.h>

#include <tests/train/strategy_equality.h>

namespace lockstep::train {
namespace {

using testing_support::expect_equal_lessons;
using testing_support::kEverySchedule;
using testing_support::LearntAlone;
using testing_support::schedules_or_all;

// Micro-batches per batch of 12 samples, and per batch of 6.
constexpr int kPipelineParts = 5;
constexpr int kHybridParts = 4;

TEST(StrategyEquality, OfReplicas) {
  for (const char* const net : {"mnist", "tied"}) {
    LearntAlone alone(net);
    for (const auto& way : testing_support::data_parallel_ways()) expect_equal_lessons(alone, way);
  }
}

TEST(StrategyEquality, OfPipelinesOnThreads) {
  for (const char* const net : {"mnist", "tied"}) {
    LearntAlone alone(net);
    for (const Schedule schedule : kEverySchedule) {
      expect_equal_lessons(alone, testing_support::thread_way(schedule, kPipelineParts));
    }
  }
}

TEST(StrategyEquality, OfPipelinesOnRanks) {
  for (const char* const net : {"mnist", "tied"}) {
    LearntAlone alone(net);
    for (const Schedule schedule : kEverySchedule) {
      expect_equal_lessons(alone, testing_support::rank_way(schedule, kPipelineParts));
    }
  }
}

// TrainerRecompute tests that the forwards do run twice.
TEST(StrategyEquality, OfPipelinesThatRecompute) {
  for (const char* const net : {"mnist", "tied"}) {
    LearntAlone alone(net);
    for (const Schedule schedule : schedules_or_all({Schedule::k1F1B, Schedule::kZbV})) {
      expect_equal_lessons(alone,
                           recomputing(testing_support::thread_way(schedule, kPipelineParts)));
      expect_equal_lessons(alone, recomputing(testing_support::rank_way(schedule, kPipelineParts)));
      expect_equal_lessons(alone, recomputing(testing_support::hybrid_way(schedule, kHybridParts)));
    }
  }
}

// If only some ranks have copies of a weight, those ranks have their own group.
TEST(StrategyEquality, OfTiesBetweenSomeOfTheRanks) {
  LearntAlone alone("tied");
  for (const char* const backend : {"shm", "gloo"}) {
    expect_equal_lessons(alone, testing_support::four_ranks_way(backend, kPipelineParts));
  }
}

TEST(StrategyEquality, OfHybrids) {
  for (const char* const net : {"mnist", "tied"}) {
    LearntAlone alone(net);
    for (const Schedule schedule : kEverySchedule) {
      expect_equal_lessons(alone, testing_support::hybrid_way(schedule, kHybridParts));
    }
    // With zbv, one rank has both stages that use the tied weight.
    for (const Schedule schedule : schedules_or_all({Schedule::k1F1B, Schedule::kZbV})) {
      expect_equal_lessons(alone,
                           testing_support::hybrid_way(schedule, kHybridParts, /*shards=*/true));
    }
  }
}

}  // namespace
}  // namespace lockstep::train
