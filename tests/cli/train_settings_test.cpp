// What `lockstep train` makes of its options before a rank exists.
#include <lockstep/cli/train_settings.h>

#include <chrono>
#include <string>
#include <vector>

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

TEST(TrainSettings, GiveDpAWeightForEachDevice) {
  TrainArguments arguments;
  arguments.recipe = "mnist";
  arguments.strategy = "dp";
  EXPECT_TRUE(resolve(arguments).strategy_options.device_weights.empty());
  arguments.device_weights = "3,0.5";
  const TrainSettings settings = resolve(arguments);
  EXPECT_EQ(settings.strategy_options.device_weights, (std::vector<double>{3, 0.5}));
  EXPECT_EQ(settings.devices, 2) << "as many as there are weights";
  arguments.devices = 2;
  EXPECT_EQ(resolve(arguments).devices, 2);

  const auto refusal = [&](const std::string& weights) {
    arguments.device_weights = weights;
    return testing_support::message_of<ConfigError>([&] { resolve(arguments); });
  };
  EXPECT_EQ(refusal("3,1,1"),
            "train: --device-weights 3,1,1 must have a number for each device, but --devices is 2");
  for (const std::string word : {"", "0", "-1", "nan", "inf", "2x"}) {
    EXPECT_EQ(refusal("3," + word),
              "train: --device-weights must be numbers from above 0 to 1e6 with commas, as in 3,1, "
              "got '" +
                  word + "'");
  }
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
