#include <lockstep/comm/call/outcome.h>

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <thread>

namespace lockstep::comm {
namespace {

TEST(Outcome, OnlyTheFirstEndCounts) {
  Outcome outcome;
  EXPECT_FALSE(outcome.has_ended());
  EXPECT_EQ(outcome.error(), nullptr);
  outcome.rethrow();
  EXPECT_TRUE(outcome.end(std::make_exception_ptr(std::runtime_error("first"))));
  EXPECT_FALSE(outcome.end());
  EXPECT_FALSE(outcome.end(std::make_exception_ptr(std::logic_error("second"))));
  EXPECT_TRUE(outcome.has_ended());
  EXPECT_THROW(outcome.rethrow(), std::runtime_error);
}

TEST(Outcome, OfSuccessHasNoError) {
  Outcome outcome;
  EXPECT_TRUE(outcome.end());
  EXPECT_FALSE(outcome.end(std::make_exception_ptr(std::runtime_error("late"))));
  EXPECT_EQ(outcome.error(), nullptr);
  outcome.rethrow();
}

// ThreadSanitizer reports a race if the end does not publish what was written before it.
TEST(Outcome, WhoSeesTheEndSeesWhatCameBefore) {
  Outcome outcome;
  std::string result;
  std::thread worker([&] {
    result = "written before the end";
    outcome.end(std::make_exception_ptr(std::runtime_error("failed")));
  });
  while (!outcome.has_ended()) std::this_thread::yield();
  EXPECT_EQ(result, "written before the end");
  EXPECT_NE(outcome.error(), nullptr);
  EXPECT_THROW(outcome.rethrow(), std::runtime_error);
  worker.join();
}

TEST(AbortReason, IsNeverEmpty) {
  EXPECT_EQ(abort_reason("the loss is infinite"), "the loss is infinite");
  EXPECT_EQ(abort_reason(""), "the group was aborted, and no reason was given");
}

}  // namespace
}  // namespace lockstep::comm
