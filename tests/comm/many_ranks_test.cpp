// More ranks than processors by far. Alone: it takes the machine for itself.
#include <gtest/gtest.h>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <tests/support/groups.h>

namespace lockstep {
namespace {

// Two processors need some seconds. When every rank asked the store for the texts of all, again and
// again, it took two minutes.
TEST(ManyRanks, MeetWithinAMinute) {
  constexpr int kRanks = 200;
  const auto start = Clock::now();
  const auto errors = testing_support::run_group_processes(
      kRanks, "shm",
      [](ProcessGroup group) {
        auto tensor = torch::ones({10});
        group.all_reduce(tensor);
        if (tensor[0].item<float>() != kRanks) throw Error("wrong sum");
      },
      std::chrono::seconds(100));
  EXPECT_EQ(errors, testing_support::no_errors(kRanks));
  EXPECT_LT(seconds_since(start), 60);
}

}  // namespace
}  // namespace lockstep
