#include <lockstep/core/error.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <new>
#include <stdexcept>
#include <type_traits>
#include <utility>

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

TEST(Error, FirstLineKeepsBracketsThatAreNoPosition) {
  const std::pair<const char*, const char*> cases[] = {
      {"[rank 3] lost", "[rank 3] lost"},
      {"tensor [2, 3] is not [enforce fail at x.cc:1] empty",
       "tensor [2, 3] is not [enforce fail at x.cc:1] empty"},
      {"[enforce fail at x.cc:1]", "[enforce fail at x.cc:1]"},
      {"[enforce fail at x.cc:1] a[0] ] b", "a[0] ] b"},
      {"\n\t[enforce fail at x.cc:1] late \nmore", "late"},
      {"can't allocate memory: you tried to allocate 12 bytes",
       "out of memory: cannot allocate 12 bytes"},
      {"one\r\ntwo", "one"},
  };
  for (const auto& [thrown, shown] : cases)
    EXPECT_EQ(first_line(std::runtime_error(thrown)), shown);
}

// A program that handles one kind of error must not catch another by accident.
template <class Kind, class... Others>
constexpr bool kIsNoneOf =
    std::is_base_of_v<Error, Kind> && !(std::is_base_of_v<Others, Kind> || ...);
static_assert(kIsNoneOf<ConfigError, DataError, CommError, CheckpointError, InternalError>);
static_assert(kIsNoneOf<DataError, ConfigError, CommError, CheckpointError, InternalError>);
static_assert(kIsNoneOf<CommError, ConfigError, DataError, TimeoutError, CheckpointError>);
static_assert(kIsNoneOf<TimeoutError, ConfigError, DataError, CheckpointError, InternalError>);
static_assert(kIsNoneOf<CheckpointError, ConfigError, DataError, CommError, InternalError>);
static_assert(kIsNoneOf<InternalError, ConfigError, DataError, CommError, CheckpointError>);

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
