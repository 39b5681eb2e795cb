// The main() of the tests with LibTorch. Loading LibTorch takes 0.4 s, longer than most tests. With
// `--suite=NAME` the process loads it once and runs each test of the suite in its own fork, where
// the test can start threads, use OpenMP, fork or crash without affecting the next one.
// `--suite=*` runs all suites in this way. Without `--suite` it is GoogleTest's usual main().
//
// The exit status is 0 if no test failed, and 77 if all were skipped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr int kSkipped = 77;

std::vector<std::string> tests_of(std::string_view suite_name) {
  std::vector<std::string> names;
  const auto& all = *testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const testing::TestSuite& suite = *all.GetTestSuite(s);
    if (suite_name != "*" && suite.name() != suite_name) continue;
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const std::string test = suite.GetTestInfo(t)->name();
      if (!test.starts_with("DISABLED_")) names.push_back(suite.name() + ("." + test));
    }
  }
  return names;
}

[[noreturn]] void run_here(const std::string& name, unsigned limit) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  alarm(limit);
  GTEST_FLAG_SET(filter, name);
  const int failed = RUN_ALL_TESTS();
  const bool skipped = testing::UnitTest::GetInstance()->skipped_test_count() > 0;
  std::cout.flush();
  std::fflush(nullptr);
  // Without exit handlers: those of LibTorch's operators write to 50 MB that the fork shares with
  // its parent, which takes 0.15 s. The tests of programs run them.
  std::_Exit(failed != 0 ? failed : skipped ? kSkipped : 0);
}

// Waits for the test. Orphans of a test become children of this process, which also reaps those
// that end before the test.
int wait_for(pid_t test) {
  for (;;) {
    int status = 0;
    const pid_t ended = waitpid(-1, &status, 0);
    if (ended == test) return status;
    if (ended < 0 && errno != EINTR) return 1;
  }
}

// Kills processes that a test has left behind, such as the ranks of one that exceeded its limit.
void end_orphans() {
  const auto path = "/proc/self/task/" + std::to_string(getpid()) + "/children";
  for (;;) {
    std::ifstream children(path);
    pid_t orphan = 0;
    if (!(children >> orphan)) return;
    kill(orphan, SIGKILL);
    waitpid(orphan, nullptr, 0);  // its children now become ours
  }
}

/// Runs a test in a fork and returns its exit status. If a signal or the limit ended it, this is
/// printed on stdout.
int run_in_fork(const std::string& name, unsigned limit) {
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid < 0) {
    std::perror("fork");
    return 1;
  }
  if (pid == 0) run_here(name, limit);
  const int status = wait_for(pid);
  end_orphans();
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  if (WTERMSIG(status) == SIGALRM) {
    std::printf("%s ran longer than its limit of %u s\n", name.c_str(), limit);
  } else {
    std::printf("%s was killed by signal %d\n", name.c_str(), WTERMSIG(status));
  }
  return 1;
}

int run_suite(std::string_view suite, unsigned limit) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const auto tests = tests_of(suite);
  std::vector<std::string> failed, skipped;
  for (const auto& test : tests) {
    const int status = run_in_fork(test, limit);
    if (status == kSkipped) skipped.push_back(test);
    if (status != 0 && status != kSkipped) failed.push_back(test);
  }
  std::printf("\n%zu tests, %zu failed, %zu skipped\n", tests.size(), failed.size(),
              skipped.size());
  for (const auto& test : skipped) std::printf("  %s was skipped\n", test.c_str());
  for (const auto& test : failed) std::printf("  %s failed\n", test.c_str());
  if (tests.empty() || !failed.empty()) return 1;
  return skipped.size() == tests.size() ? kSkipped : 0;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  constexpr std::string_view kSuite = "--suite=";
  constexpr std::string_view kLimit = "--limit=";
  std::string suite;
  unsigned limit = 60;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.starts_with(kSuite)) {
      suite = argument.substr(kSuite.size());
    } else if (argument.starts_with(kLimit)) {
      limit = static_cast<unsigned>(std::strtoul(argv[i] + kLimit.size(), nullptr, 10));
    } else {
      std::fprintf(stderr, "%s: unknown argument %s\n", argv[0], argv[i]);
      return 2;
    }
  }
  return suite.empty() ? RUN_ALL_TESTS() : run_suite(suite, limit);
}
