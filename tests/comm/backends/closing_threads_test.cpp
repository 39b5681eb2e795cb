// Threads that close communicators while the process goes on.
#include <atomic>
#include <chrono>
#include <latch>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/comm/backends/nccl/closing_threads.h>

namespace lockstep {
namespace {

using std::chrono::milliseconds;

TEST(ClosingThreads, EndBeforeTheyAreDestroyed) {
  std::latch may_end{1};
  std::atomic<bool> ended = false;
  std::thread later;
  {
    nccl::ClosingThreads threads;
    threads.run(
        [&] {
          may_end.wait();
          ended = true;
        },
        milliseconds(1));
    EXPECT_FALSE(ended);
    later = std::thread([&] { may_end.count_down(); });
  }
  EXPECT_TRUE(ended);
  later.join();
}

}  // namespace
}  // namespace lockstep
