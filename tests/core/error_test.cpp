#include <lockstep/core/error.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <new>
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
  EXPECT_EQ(first_line(std::runtime_error("\n  what \nwhere\n")), "what");
}

TEST(Error, FirstLineSaysSomethingToPeople) {
  EXPECT_EQ(first_line(std::runtime_error("")),
            "an error of type std::runtime_error that says nothing");
  EXPECT_EQ(first_line(CommError(" \n\n")),
            "an error of type lockstep::CommError that says nothing");
  EXPECT_EQ(first_line(std::bad_alloc()), "out of memory");
  EXPECT_EQ(first_line(std::bad_array_new_length()), "out of memory");
  EXPECT_EQ(first_line(std::runtime_error(
                "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate "
                "memory: you tried to allocate 67108864 bytes. Error code 12 (Cannot allocate "
                "memory)\nframe #0: c10::ThrowEnforceNotMet")),
            "out of memory: cannot allocate 67108864 bytes");
  EXPECT_EQ(first_line(std::runtime_error("[enforce fail at /gloo/loop.cc:48] rv != -1. pipe: Too "
                                          "many open files")),
            "rv != -1. pipe: Too many open files");
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
