// What `lockstep train` makes of its options before a rank exists.
#include <lockstep/cli/train_settings.h>

#include <chrono>

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace lockstep
