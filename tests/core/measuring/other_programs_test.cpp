// Tests of the measured use of the processors by other programs.
#include <lockstep/core/measuring/other_programs.h>

#include <sys/wait.h>
#include <unistd.h>

#include <stop_token>
#include <thread>

#include <gtest/gtest.h>

#include <lockstep/core/clock.h>
#include <lockstep/core/cpu.h>

namespace lockstep {
namespace {

constexpr const char* kStat =
    "cpu  1110 20 330 9000 50 6 8 10 0 0\n"
    "cpu0 1000 20 300 4000 50 5 7 8 0 0\n"
    "cpu1 110 0 30 5000 0 1 1 2 0 0\n"
    "intr 12 34\n";

TEST(BusySeconds, AreThoseOfTheProcessorsInQuestion) {
  EXPECT_DOUBLE_EQ(busy_seconds(kStat, {0}, 100).value(), 13.40);
  EXPECT_DOUBLE_EQ(busy_seconds(kStat, {0, 1}, 100).value(), 13.40 + 1.44);
  EXPECT_FALSE(busy_seconds(kStat, {2}, 100));
  EXPECT_FALSE(busy_seconds("", {0}, 100));
}

TEST(OtherPrograms, AreAShare) {
  const OtherPrograms others;
  usleep(20'000);
  const std::optional<double> share = others.share();
  if (!share) GTEST_SKIP() << "this kernel does not tell";
  EXPECT_GE(*share, 0);
  EXPECT_LE(*share, 1);
}

// Two busy threads share one processor.
TEST(ProcessorWaitTiming, IsThatOfAThreadWithoutAProcessor) {
  if (!processor_wait_seconds()) GTEST_SKIP() << "this kernel does not tell";
  double waited = 0;
  std::thread pinned([&] {
    if (!pin_to_cpus({available_cpus().front()})) return;
    const std::jthread other([](const std::stop_token& end) {
      while (!end.stop_requested()) {
      }
    });
    const double before = processor_wait_seconds().value();
    const Clock::time_point start = Clock::now();
    while (seconds_since(start) < 0.2) {
    }
    waited = processor_wait_seconds().value() - before;
  });
  pinned.join();
  EXPECT_GE(waited, 0.02);
  EXPECT_LE(waited, 10);
}

TEST(ProcessorSeconds, OfChildrenCountWhenTheyAreWaitedFor) {
  const double before = processor_seconds_of_children();
  const pid_t child = fork();
  if (child == 0) {
    while (processor_seconds() < 0.05) {
    }
    _exit(0);
  }
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_GE(processor_seconds_of_children() - before, 0.04);
}

}  // namespace
}  // namespace lockstep
