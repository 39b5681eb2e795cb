#include <lockstep/core/error.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <stdexcept>

namespace lockstep {
namespace {

TEST(Error, ExitCodes) {
  EXPECT_EQ(exit_code(ConfigError("x")), 2);
  EXPECT_EQ(exit_code(DataError("x")), 1);
  EXPECT_EQ(exit_code(CommError("x")), 1);
  EXPECT_EQ(exit_code(TimeoutError("x")), 1);
  EXPECT_EQ(exit_code(CheckpointError("x")), 1);
  EXPECT_EQ(exit_code(InternalError("x")), 1);
  EXPECT_EQ(exit_code(std::runtime_error("x")), 1);
}

TEST(Error, FirstLineCutsABacktrace) {
  EXPECT_EQ(first_line(std::runtime_error("what\nwhere\n")), "what");
  EXPECT_EQ(first_line(std::runtime_error("what")), "what");
  EXPECT_EQ(first_line(std::runtime_error("")), "");
}

TEST(Error, ATimeoutIsACommunicationError) {
  EXPECT_THROW(throw TimeoutError("x"), CommError);
  EXPECT_THROW(throw TimeoutError("x"), Error);
}

TEST(Error, ErrnoText) { EXPECT_EQ(errno_text(ENOENT), "No such file or directory"); }

TEST(Check, PassesOrSaysWhereAndWhat) {
  LOCKSTEP_CHECK(1 + 1 == 2, "arithmetic");
  try {
    const int got = 3;
    LOCKSTEP_CHECK(got == 2, "got ", got);
    FAIL() << "nothing was thrown";
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), ::testing::MatchesRegex(
                                  "internal error at error_test.cpp:[0-9]+: got == 2: got 3"));
  }
}

}  // namespace
}  // namespace lockstep
