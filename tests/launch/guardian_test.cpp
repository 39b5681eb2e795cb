// The process between the launcher and ranks that become another program, when it fails itself.
#include <lockstep/launch/launcher.h>

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>

#include <lockstep/core/environment.h>
#include <lockstep/core/error.h>
#include <tests/launch/channel.h>
#include <tests/launch/few_descriptors.h>
#include <tests/support/messages.h>
#include <tests/support/process_usage.h>

namespace lockstep::launch {
namespace {

using testing_support::Channel;
using testing_support::descriptor_count;
using testing_support::FewDescriptors;
using testing_support::message_of;

[[noreturn]] void wait_to_be_killed() {
  while (true) pause();
}

// Rank 1 kills it once both ranks run.
TEST(Guardian, IsNamedWhenItIsKilled) {
  Channel started;
  Channel alive;
  const LaunchOptions options = {
      .nproc_per_node = 2, .ranks_exec = true, .rank_output = RankOutput::kInherited};
  const LaunchResult result = launch_ranks(options, [&] {
    if (environment_string("RANK") == "0") {
      started.write_line("rank 0");
      wait_to_be_killed();
    }
    started.read_line();
    kill(getppid(), SIGKILL);
    wait_to_be_killed();
  });
  EXPECT_EQ(result.message,
            "the process between the launcher and the ranks was killed by signal 9 (Killed), so "
            "all ranks were ended; start the job again");
  EXPECT_EQ(result.exit_code, 137);
  EXPECT_EQ(result.failed_rank, -1);
  EXPECT_EQ(result.interrupted_by, 0);
  EXPECT_EQ(result.details, "");
  EXPECT_TRUE(alive.wait_for_end()) << "a rank still runs";
}

// The system refuses the pipe of one of the last ranks, with and without the process in between.
TEST(Guardian, ReportsWhyARankCouldNotBeStarted) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "UndefinedBehaviorSanitizer opens pipes, too, and takes a failure for a defect";
#endif
  for (const bool ranks_exec : {false, true}) {
    Channel alive;
    const std::size_t before = descriptor_count();
    const LaunchOptions options = {
        .nproc_per_node = 8, .ranks_exec = ranks_exec, .rank_output = RankOutput::kInherited};
    {
      const FewDescriptors few(6);
      EXPECT_EQ(message_of<Error>([&] { launch_ranks(options, wait_to_be_killed); }),
                "cannot open a pipe: Too many open files");
    }
    EXPECT_EQ(descriptor_count(), before);
    EXPECT_TRUE(alive.wait_for_end()) << "a rank still runs";
  }
}

}  // namespace
}  // namespace lockstep::launch
