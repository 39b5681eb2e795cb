// The rounds of `lockstep bench step --strategy all`. No test depends on the speed of the machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include <lockstep/bench/strategies/rounds.h>
#include <lockstep/core/strings.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using testing_support::TemporaryDirectory;

StrategyWay way_called(const std::string& name, const StrategyWork& work) {
  for (const StrategyWay& way : strategy_ways(work)) {
    if (way.name == name) return way;
  }
  ADD_FAILURE() << "no way " << name;
  return {};
}

// One step of the MNIST net.
BenchStrategiesSettings settings_with(const std::vector<std::string>& ways) {
  BenchStrategiesSettings settings;
  settings.model = "mnist";
  settings.image_size = 28;
  settings.work = {.threads = 2, .batch = 4, .micro_batches = 2};
  settings.backend = "auto";
  settings.precision = "32";
  settings.optimizer = "sgd";
  settings.rounds = 1;
  settings.steps = 1;
  settings.timeout = std::chrono::seconds(60);
  for (const std::string& way : ways) settings.ways.push_back(way_called(way, settings.work));
  return settings;
}

// In each round another way is the first, and one that cannot be run is not tried again.
TEST(MeasureStrategies, RunsTheWaysInTurn) {
  BenchStrategiesSettings settings = settings_with({"single", "dp-gathered", "ddp"});
  settings.rounds = 2;
  settings.ways[1].ranks = 2;
  std::vector<std::string> begun;
  const MeasuredStrategies measured = measure_strategies(
      settings, [&](int round, const std::string& way) { begun.push_back(str(round, ' ', way)); });
  ASSERT_TRUE(measured.failure.ok()) << measured.failure.message;
  EXPECT_THAT(begun, ElementsAre("0 single", "0 dp-gathered", "0 ddp", "1 ddp", "1 single"));
  ASSERT_THAT(measured.ways, SizeIs(3));
  EXPECT_THAT(measured.ways[1].why_not, HasSubstr("strategy dp trains in one process"));
  EXPECT_THAT(measured.ways[1].figures, IsEmpty());
  for (const int i : {0, 2}) {
    const StrategyRounds& way = measured.ways[static_cast<std::size_t>(i)];
    EXPECT_EQ(way.way.name, i == 0 ? "single" : "ddp");
    EXPECT_THAT(way.why_not, IsEmpty());
    ASSERT_THAT(way.figures, SizeIs(2));
    for (const std::vector<RankFigures>& ranks : way.figures) {
      ASSERT_THAT(ranks, SizeIs(way.way.ranks));
      for (const RankFigures& rank : ranks) EXPECT_EQ(rank.steps, 1);
    }
  }
}

TEST(MeasureStrategies, EndWithTheFirstFailure) {
  const TemporaryDirectory folder;
  BenchStrategiesSettings settings = settings_with({"single", "single-half"});
  settings.trace = folder / "missing";
  int begun = 0;
  const MeasuredStrategies measured =
      measure_strategies(settings, [&](int, const std::string&) { ++begun; });
  EXPECT_EQ(measured.failure.exit_code, 1);
  EXPECT_THAT(measured.failure.message, HasSubstr("cannot write "));
  EXPECT_EQ(begun, 1);
  ASSERT_THAT(measured.ways, SizeIs(2));
  EXPECT_THAT(measured.ways[0].figures, IsEmpty());
}

// The command's tests measure those of a ResNet.
TEST(AddBalancedCuts, MeasuresNothingWithoutNeed) {
  BenchStrategiesSettings settings = settings_with({"single", "pipeline-1f1b"});
  EXPECT_TRUE(add_balanced_cuts(settings).ok());
  EXPECT_THAT(settings.cuts, IsEmpty());
  settings = settings_with({"single"});
  settings.cut = "balance";
  EXPECT_TRUE(add_balanced_cuts(settings).ok());
  EXPECT_THAT(settings.cuts, IsEmpty());
}

}  // namespace
}  // namespace lockstep::bench
