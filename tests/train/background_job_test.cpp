#include <lockstep/train/measuring/background_job.h>

#include <algorithm>
#include <atomic>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <tests/support/captured_log.h>

namespace lockstep::train {
namespace {

TEST(BackgroundJob, RunsBesideItsCaller) {
  std::latch begun(1);
  std::latch may_end(1);
  int result = 0;
  BackgroundJob job;
  job.start([&] {
    begun.count_down();
    may_end.wait();
    result = 5;
  });
  begun.wait();
  may_end.count_down();
  job.wait();
  EXPECT_EQ(result, 5);
  job.wait();  // nothing to wait for
}

TEST(BackgroundJob, RunsOneAfterTheOther) {
  std::atomic<int> at_once{0};
  std::atomic<int> most{0};
  int done = 0;
  BackgroundJob job;
  for (int i = 0; i < 50; ++i) {
    job.start([&] {
      most = std::max(most.load(), ++at_once);
      ++done;  // jobs never overlap
      --at_once;
    });
  }
  job.wait();
  EXPECT_EQ(done, 50);
  EXPECT_EQ(most, 1);
}

TEST(BackgroundJob, ThrowsAnErrorOnceInItsCaller) {
  BackgroundJob job;
  job.start([] { throw CheckpointError("the disk is full"); });
  bool begun = false;
  try {
    job.start([&] { begun = true; });
    FAIL() << "nothing was thrown";
  } catch (const CheckpointError& error) {
    EXPECT_EQ(error.what(), std::string("the disk is full"));
  }
  job.wait();
  EXPECT_FALSE(begun) << "begins nothing after an error";
  job.start([&] { begun = true; });
  job.wait();
  EXPECT_TRUE(begun);
}

TEST(BackgroundJob, IsWaitedForAtItsEnd) {
  const testing_support::CapturedLog log;
  std::latch may_end(1);
  std::atomic<bool> ended{false};
  std::thread helper;
  {
    BackgroundJob job;
    job.start([&] {
      may_end.wait();
      ended = true;
      throw Error("nobody waits for it");
    });
    helper = std::thread([&] { may_end.count_down(); });
  }
  EXPECT_TRUE(ended);
  EXPECT_EQ(log.lines(),
            std::vector<std::string>{"warning: in the background: nobody waits for it"});
  helper.join();
}

// An exception of another kind must not end the process in a destructor either.
TEST(BackgroundJob, OutlivesAnyException) {
  const testing_support::CapturedLog log;
  {
    BackgroundJob job;
    job.start([] { throw 7; });
    EXPECT_THROW(job.wait(), int);
    job.wait();
    job.start([] { throw 8; });
  }
  EXPECT_EQ(log.lines(),
            std::vector<std::string>{
                "warning: in the background: an exception not derived from std::exception"});
}

}  // namespace
}  // namespace lockstep::train
