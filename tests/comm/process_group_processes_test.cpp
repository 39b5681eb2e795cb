// Process groups with ranks as forked processes, one of which dies. The parent runs no tensor code.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include <lockstep/core/error.h>
#include <tests/support/groups.h>

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing_support::no_errors;
using testing_support::run_group_processes;

class Processes : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, Processes, testing::Values("auto", "shm", "gloo"),
                         [](const auto& info) { return info.param; });

TEST_P(Processes, AgreeOnTheBitsOfASum) {
  const auto errors = run_group_processes(4, GetParam(), [](ProcessGroup group) {
    torch::manual_seed(group.rank());
    auto tensor = torch::randn({12345});
    group.all_reduce(tensor, ReduceOp::kAverage);
    const auto texts = group.all_gather_object(
        str(tensor.view(torch::kInt32).to(torch::kInt64).sum().item<std::int64_t>()));
    for (const auto& text : texts) {
      if (text != texts[0]) throw Error(str(text, " is not ", texts[0]));
    }
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(4));
}

TEST_P(Processes, APeersDeathEndsAWait) {
  const auto start = Clock::now();
  const auto errors = run_group_processes(3, GetParam(), [](ProcessGroup group) {
    auto tensor = torch::ones({1000});
    group.all_reduce(tensor);
    if (group.rank() == 2) raise(SIGKILL);
    for (;;) group.all_reduce(tensor);
  });
  EXPECT_LT(seconds_since(start), 5);
  EXPECT_EQ(errors[2], "killed by signal 9");
  for (int rank : {0, 1}) {
    EXPECT_THAT(errors[static_cast<std::size_t>(rank)], HasSubstr("all_reduce"));
    if (GetParam() != "gloo") {
      EXPECT_THAT(errors[static_cast<std::size_t>(rank)], HasSubstr("rank 2 (process "));
    }
  }
}

TEST_P(Processes, AnAbortTellsTheReason) {
  const auto errors = run_group_processes(
      2, GetParam(),
      [](ProcessGroup group) {
        group.barrier();
        if (group.rank() == 1) {
          group.abort("the loss is not a number");
          // It stays until rank 0 has seen it: not the end of a connection tells, but the abort.
          while (true) pause();
        }
        group.barrier();
        throw Error("the barrier is over");
      },
      /*limit=*/std::chrono::seconds(3));
  EXPECT_THAT(errors[0], HasSubstr("the loss is not a number"));
}

}  // namespace
}  // namespace lockstep
