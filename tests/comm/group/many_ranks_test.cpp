// Far more ranks than processors. Runs alone, because it takes over the machine.
#include <gtest/gtest.h>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <tests/support/groups.h>
#include <tests/support/moment.h>

namespace lockstep {
namespace {

// Measures from before the first process exists until the last one has its group; the processes'
// later work and their exit do not count. Two processors need a few seconds. When every rank
// queried the store repeatedly for the texts of all ranks, it took two minutes.
TEST(ManyRanksMeeting, TakesAtMostTwentySeconds) {
  constexpr int kRanks = 200;
  testing_support::Moment met;  // set when the last rank has its group
  const auto start = Clock::now();
  const auto errors = testing_support::run_group_processes(
      kRanks, "shm",
      [&](ProcessGroup group) {
        met.mark();
        auto tensor = torch::ones({10});
        group.all_reduce(tensor);
        if (tensor[0].item<float>() != kRanks) throw Error("wrong sum");
      },
      std::chrono::seconds(100));
  ASSERT_EQ(errors, testing_support::no_errors(kRanks));
  EXPECT_LT(seconds_since(start) - met.seconds_ago(), 20);
}

}  // namespace
}  // namespace lockstep
