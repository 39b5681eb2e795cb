// Test suites for suite_main_test.py, whose tests pass, fail, are skipped, crash, take too long, or
// leave something behind.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

namespace {

int left_behind = 0;

TEST(Passes, First) { EXPECT_EQ(left_behind++, 0); }
TEST(Passes, SeesNothingOfTheFirst) { EXPECT_EQ(left_behind++, 0); }
TEST(Passes, DISABLED_Never) { FAIL(); }

TEST(FailsOnce, Passes) {}
TEST(FailsOnce, Fails) { EXPECT_EQ(1, 2); }
TEST(FailsOnce, PassesAfterwards) {}

TEST(Skips, One) { GTEST_SKIP(); }
TEST(SkipsOne, One) { GTEST_SKIP(); }
TEST(SkipsOne, Two) {}

TEST(Crashes, InTheMiddle) { raise(SIGSEGV); }
TEST(Crashes, NotAfterwards) {}

TEST(Lasts, TooLong) { sleep(20); }

// Imitates ranks that wait for each other: a child in a process group of its own, which has a child
// in turn.
TEST(LeavesProcesses, WhenItLastsTooLong) {
  if (fork() == 0) {
    setpgid(0, 0);
    fork();
    sleep(100);
    _exit(0);
  }
  sleep(100);
}

class Numbers : public testing::TestWithParam<int> {};
TEST_P(Numbers, AreSmall) { EXPECT_LT(GetParam(), 3); }
INSTANTIATE_TEST_SUITE_P(UpToThree, Numbers, testing::Values(1, 2, 3));

}  // namespace
