// The time since the command began, in the launcher and in its ranks.
#include <lockstep/launch/process_clock.h>

#include <gtest/gtest.h>

#include <string>

#include <lockstep/launch/launcher.h>
#include <tests/launch/channel.h>

namespace lockstep::launch {
namespace {

TEST(ProcessClock, CountsFromTheLaunchersStart) {
  const double before = seconds_since_command_start();
  testing_support::Channel channel;
  launch_ranks({}, [&] { channel.write_line(std::to_string(seconds_since_command_start())); });
  const double in_rank = std::stod(channel.read_line());
  EXPECT_GT(before, 0);
  EXPECT_GE(in_rank, before - 1e-5);  // to_string rounds to six decimals
  EXPECT_LE(in_rank, seconds_since_command_start() + 1e-5);
}

}  // namespace
}  // namespace lockstep::launch
