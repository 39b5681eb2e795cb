// What `lockstep train` makes of its options before a rank exists.
#include <lockstep/cli/train_settings.h>

#include <chrono>
#include <string>

#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <tests/support/messages.h>

namespace lockstep {
namespace {

// Stages on threads wait for each other without a group whose timeout could hold.
TEST(TrainSettings, GiveAPipelineTheDeadlineOfAllWaits) {
  TrainArguments arguments;
  arguments.recipe = "cifar10";
  arguments.strategy = "pipeline";
  arguments.timeout_seconds = 7.5;
  const TrainSettings settings = resolve(arguments);
  EXPECT_EQ(settings.timeout, std::chrono::milliseconds(7500));
  EXPECT_EQ(settings.strategy_options.timeout, std::chrono::milliseconds(7500));
}

TEST(TrainSettings, GivePipelinesTheirRecomputation) {
  TrainArguments arguments;
  arguments.recipe = "cifar10";
  arguments.strategy = "pipeline";
  EXPECT_FALSE(resolve(arguments).strategy_options.recompute);
  arguments.recompute = true;
  EXPECT_TRUE(resolve(arguments).strategy_options.recompute);
  arguments.strategy = "hybrid";
  arguments.nproc_per_node = 4;
  EXPECT_TRUE(resolve(arguments).strategy_options.recompute);
}

// What is wrong with the stages is told with the option that gave them.
TEST(TrainSettings, NameTheOptionOfStagesThatCannotBe) {
  const auto refusal = [](const std::string& recipe, int stages, const std::string& schedule) {
    TrainArguments arguments;
    arguments.recipe = recipe;
    arguments.strategy = "pipeline";
    arguments.stages = stages;
    arguments.schedules = {schedule};
    return testing_support::message_of<ConfigError>([&] { resolve(arguments); });
  };
  EXPECT_EQ(refusal("mnist", 5, "1f1b"),
            "train: --strategy pipeline, --stages 5: recipe mnist: the number of stages must be "
            "from 1 to 4, got 5");
  EXPECT_EQ(refusal("cifar10", 3, "zbv"),
            "train: --strategy pipeline, --stages 3: Pipeline: the schedule zbv has 2 stages on "
            "each worker, got 3 stages in all");
}

}  // namespace
}  // namespace lockstep
