// Failures of ranks over NCCL: a rank that cannot connect, dies, hangs, ends the group or makes a
// different call. The kernels of the others, which would wait forever, end, each rank gets an error
// that says why, and its process can join another group.
#include <lockstep/comm/group/process_group.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <tests/support/devices/gpu_ranks.h>
#include <tests/support/survivors.h>

namespace lockstep {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::StartsWith;
using testing_support::GpuRank;
using testing_support::GpuRanksOutcome;
using testing_support::kTwoToEightRanks;
using testing_support::name_of_ranks;
using testing_support::nccl_options;
using testing_support::run_on_gpus;
using testing_support::Survivors;

torch::Tensor ones_on(const GpuRank& place, std::int64_t count = 1000) {
  return torch::ones({count}, place.device);
}

// The first collective of a group, after which all ranks are connected.
void begin_together(ProcessGroup& group, const GpuRank& place) {
  const torch::Tensor tensor = ones_on(place);
  group.all_reduce(tensor);
  place.synchronize();
  LOCKSTEP_CHECK(tensor[0].item<float>() == static_cast<float>(place.size), "a wrong sum");
}

// Calls `failing` on this rank, and expects an error. Returns the error once all ranks have theirs,
// so that none of them fails only because another one has left.
template <class Failing>
std::string error_of_rank(Survivors& all, const Failing& failing) {
  std::string text = "no error";
  try {
    failing();
  } catch (const std::exception& error) {
    text = error.what();
  }
  all.wait_for_all();
  return text;
}

// Calls all_reduce until the group has ended. No wait but the device's own has a deadline.
void reduce_until_the_end(ProcessGroup& group, const GpuRank& place) {
  const torch::Tensor tensor = ones_on(place);
  for (;;) {
    group.all_reduce(tensor);
    place.synchronize();  // returns when the kernel has ended or the group has been aborted
  }
}

class NcclFailures : public testing::TestWithParam<int> {
 protected:
  // Expects that every rank but the last throws an error that `matches`, and the last one `own`.
  static void expect_errors(const GpuRanksOutcome& outcome,
                            const testing::Matcher<const std::string&>& matches,
                            const testing::Matcher<const std::string&>& own) {
    ASSERT_EQ(outcome.errors.size(), static_cast<std::size_t>(GetParam()));
    for (int rank = 0; rank < GetParam() - 1; ++rank) {
      EXPECT_THAT(outcome.errors[static_cast<std::size_t>(rank)], matches) << "rank " << rank;
    }
    EXPECT_THAT(outcome.errors.back(), own);
  }
  static std::string last() { return str("rank ", GetParam() - 1); }
};
INSTANTIATE_TEST_SUITE_P(Ranks, NcclFailures, kTwoToEightRanks, name_of_ranks);

// The others wait for it in NCCL, where nothing interrupts them.
TEST_P(NcclFailures, OfARankThatCannotConnectAreErrorsOfAll) {
  const GpuRanksOutcome outcome = run_on_gpus(GetParam(), [&](const GpuRank& place) {
    if (place.is_last()) setenv("NCCL_SOCKET_IFNAME", "=none", /*overwrite=*/1);
    place.join();
    throw Error("it has joined");
  });
  if (!outcome.why_skipped.empty()) GTEST_SKIP() << outcome.why_skipped;
  const auto named = StartsWith(last() + ": cannot connect the ranks over NCCL on cuda:");
  expect_errors(outcome, named, named);
}

TEST_P(NcclFailures, OfARankThatDiesInACollectiveEndTheOthers) {
  Survivors survivors(GetParam() - 1);
  const GpuRanksOutcome outcome = run_on_gpus(GetParam(), [&](const GpuRank& place) {
    ProcessGroupOptions options = nccl_options();
    options.host_timeout = std::chrono::seconds(4);
    ProcessGroup group = place.join(options);
    begin_together(group, place);
    if (place.is_last()) {
      group.async_all_reduce(ones_on(place, 1 << 22));  // its kernel has hardly begun
      raise(SIGKILL);
    }
    throw Error(error_of_rank(survivors, [&] {
      group.all_reduce(ones_on(place, 1 << 22));
      reduce_until_the_end(group, place);
    }));
  });
  if (!outcome.why_skipped.empty()) GTEST_SKIP() << outcome.why_skipped;
  expect_errors(outcome, AllOf(HasSubstr("all_reduce"), HasSubstr(last())), "killed by signal 9");
}

// The rank is alive, but it does not call what the others wait for.
TEST_P(NcclFailures, OfARankThatHangsEndTheOthersAtTheirDeadline) {
  Survivors all(GetParam());
  const GpuRanksOutcome outcome = run_on_gpus(GetParam(), [&](const GpuRank& place) {
    ProcessGroup group = place.join();
    begin_together(group, place);
    if (place.is_last()) return all.wait_for_all();
    throw Error(error_of_rank(
        all, [&] { group.async_all_reduce(ones_on(place))->wait(std::chrono::seconds(4)); }));
  });
  if (!outcome.why_skipped.empty()) GTEST_SKIP() << outcome.why_skipped;
  expect_errors(outcome,
                AllOf(HasSubstr(" waited 4 s in all_reduce[float32, 1000]"),
                      HasSubstr("over nccl for " + last())),
                "");
}

// Only the stream waits, so that the watchdog ends the kernel at the group's own deadline.
TEST(NcclDeadline, EndsTheKernelThatWaitsForAPeer) {
  Survivors all(2);
  const GpuRanksOutcome outcome = run_on_gpus(2, [&](const GpuRank& place) {
    ProcessGroupOptions options = nccl_options();
    options.timeout = std::chrono::seconds(9);
    ProcessGroup group = place.join(options);
    begin_together(group, place);
    if (place.is_last()) return all.wait_for_all();
    throw Error(error_of_rank(all, [&] { reduce_until_the_end(group, place); }));
  });
  if (!outcome.why_skipped.empty()) GTEST_SKIP() << outcome.why_skipped;
  ASSERT_EQ(outcome.errors.size(), 2U);
  EXPECT_THAT(outcome.errors[0], AllOf(HasSubstr("rank 0 waited 9 s in all_reduce[float32, 1000]"),
                                       HasSubstr("over nccl for rank 1")));
  EXPECT_EQ(outcome.errors[1], "");
}

// Joins a second group of all ranks in the same processes, in which nothing is wrong.
void use_another_group(const GpuRank& place) {
  ProcessGroup group = place.join(nccl_options(), /*number=*/1);
  begin_together(group, place);
  group.barrier();
}

TEST_P(NcclFailures, OfARankThatEndsTheGroupReachAllAndLeaveRoomForAnother) {
  Survivors all(GetParam());
  const GpuRanksOutcome outcome = run_on_gpus(GetParam(), [&](const GpuRank& place) {
    std::string error;
    {
      ProcessGroup group = place.join();
      begin_together(group, place);
      error = error_of_rank(all, [&] {
        if (place.is_last()) group.abort("the loss is not a number");
        reduce_until_the_end(group, place);
      });
    }
    use_another_group(place);
    throw Error(error);
  });
  if (!outcome.why_skipped.empty()) GTEST_SKIP() << outcome.why_skipped;
  expect_errors(outcome, HasSubstr(last() + " ended the group: the loss is not a number"),
                HasSubstr("the loss is not a number"));
}

// With LOCKSTEP_DEBUG=detail all ranks compare their calls, and none starts one that differs.
TEST_P(NcclFailures, OfADifferentCallNameBothCallsOnAllRanks) {
  Survivors all(GetParam());
  const GpuRanksOutcome outcome = run_on_gpus(GetParam(), [&](const GpuRank& place) {
    std::string error;
    {
      setenv("LOCKSTEP_DEBUG", "detail", /*overwrite=*/1);
      ProcessGroup group = place.join();
      unsetenv("LOCKSTEP_DEBUG");
      begin_together(group, place);
      error = error_of_rank(all, [&] {
        const torch::Tensor tensor = ones_on(place);
        place.is_last() ? group.broadcast(tensor) : group.all_reduce(tensor);
        place.synchronize();
      });
    }
    use_another_group(place);
    throw Error(error);
  });
  if (!outcome.why_skipped.empty()) GTEST_SKIP() << outcome.why_skipped;
  EXPECT_EQ(outcome.errors.size(), static_cast<std::size_t>(GetParam()));
  EXPECT_THAT(outcome.errors,
              Each(AllOf(HasSubstr(last() + " called broadcast[float32, 1000, root 0]"),
                         HasSubstr("all_reduce[float32, 1000]"))));
}

}  // namespace
}  // namespace lockstep
