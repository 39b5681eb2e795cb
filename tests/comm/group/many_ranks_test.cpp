// More ranks than processors by far. Alone: it takes the machine for itself.
#include <gtest/gtest.h>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <tests/support/groups.h>
#include <tests/support/moment.h>

namespace lockstep {
namespace {

// From before the first process exists until the last one has its group: what the processes do
// then, and their ends, do not count. Two processors need some seconds. When every rank asked the
// store for the texts of all, again and again, it took two minutes.
TEST(ManyRanksMeeting, TakesAtMostTwentySeconds) {
  constexpr int kRanks = 200;
  testing_support::Moment met;  // by the rank that has its group last
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
