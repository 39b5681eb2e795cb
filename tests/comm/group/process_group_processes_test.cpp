// Process groups with ranks as forked processes, one of which dies. The parent runs no tensor code.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <set>
#include <utility>

#include <lockstep/core/error.h>
#include <tests/support/groups.h>
#include <tests/support/scoped_environment.h>
#include <tests/support/temporary_directory.h>

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing_support::no_errors;
using testing_support::run_group_processes;

class Processes : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, Processes, ::testing::Values("auto", "shm", "gloo", "hierarchical"),
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
    const bool across_hosts = GetParam() == "gloo" || GetParam() == "hierarchical";
    EXPECT_THAT(errors[static_cast<std::size_t>(rank)],
                HasSubstr(across_hosts ? "rank 2" : "rank 2 (process "));
  }
}

TEST_P(Processes, AnAbortTellsTheReason) {
  const auto errors = run_group_processes(
      2, GetParam(),
      [](ProcessGroup group) {
        group.barrier();
        if (group.rank() == 1) {
          group.abort("the loss is not a number");
          // It stays until rank 0 has seen the abort, so the reason cannot come from a closed
          // connection.
          while (true) pause();
        }
        group.barrier();
        throw Error("the barrier is over");
      },
      /*limit=*/std::chrono::seconds(3));
  EXPECT_THAT(errors[0], HasSubstr("the loss is not a number"));
}

// The child does not have the group's threads, and the peers must not be notified that this rank
// leaves.
TEST_P(Processes, AForkedChildLeavesTheGroupToItsParent) {
  const auto errors = run_group_processes(2, GetParam(), [](ProcessGroup group) {
    auto tensor = torch::ones({1000});
    group.all_reduce(tensor);
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);  // ends a child that hangs
      {
        const ProcessGroup last = std::move(group);
      }
      _exit(0);
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child || status != 0) {
      throw Error(str("the child ended with status ", status));
    }
    group.barrier();
    group.all_reduce(tensor);
    if (tensor[0].item<float>() != 4) throw Error("a wrong sum");
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(FlightRecorderFolders, OfTwoJobsAreTwo) {
  const testing_support::TemporaryDirectory directory;
  testing_support::ScopedEnvironment environment;
  environment.set("TMPDIR", directory.path().string());
  environment.set("LOCKSTEP_FLIGHT_RECORDER", std::nullopt);
  for (const int size : {3, 2}) {
    run_group_processes(size, "shm", [](ProcessGroup group) {
      group.barrier();
      if (group.rank() == 0) group.abort("enough");
      group.barrier();
    });
  }
  std::multiset<std::set<std::string>> jobs;
  const auto user = directory.path() / lockstep::str("lockstep_flight_", geteuid());
  for (const auto& job : std::filesystem::directory_iterator(user)) {
    std::set<std::string> files;
    for (const auto& file : std::filesystem::directory_iterator(job)) {
      files.insert(file.path().filename().string());
    }
    jobs.insert(files);
  }
  EXPECT_EQ(jobs, (std::multiset<std::set<std::string>>{{"rank_0", "rank_1"},
                                                        {"rank_0", "rank_1", "rank_2"}}));
}

// LibTorch's store would print, with a backtrace, that it has lost rank 0.
TEST(StandardError, IsLeftToTheProgram) {
  const testing_support::TemporaryDirectory directory;
  const auto file_of = [&](int rank) { return directory.path() / std::to_string(rank); };
  const auto errors = run_group_processes(3, "gloo", [&](ProcessGroup group) {
    group.barrier();
    const int file = open(file_of(group.rank()).c_str(), O_WRONLY | O_CREAT, 0600);
    if (dup2(file, STDERR_FILENO) < 0) throw Error("dup2");
    group.barrier();
    if (group.rank() == 0) raise(SIGKILL);
    for (;;) group.barrier();
  });
  for (const int rank : {1, 2}) {
    EXPECT_THAT(errors[static_cast<std::size_t>(rank)], HasSubstr("rank 0"));
    EXPECT_EQ(std::filesystem::file_size(file_of(rank)), 0U);
  }
}

}  // namespace
}  // namespace lockstep
