#include <lockstep/core/log.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

class Log : public ::testing::Test {
 protected:
  Log() {
    set_log_sink([this](LogLevel, const std::string& line) { lines_.push_back(line); });
  }
  ~Log() override {
    set_log_sink(nullptr);
    set_log_rank(-1);
    set_log_level(LogLevel::kWarning);
  }
  std::vector<std::string> lines_;
};

TEST_F(Log, PassesTheLevelAndWhatIsAbove) {
  set_log_level(LogLevel::kWarning);
  log_debug("debug");
  log_info("info");
  log_warning("warning ", 1);
  log_error("error ", 2);
  ASSERT_EQ(lines_.size(), 2U);
  EXPECT_THAT(lines_[0], ::testing::EndsWith("warning 1"));
  EXPECT_THAT(lines_[1], ::testing::EndsWith("error 2"));
}

TEST_F(Log, HidesCredentials) {
  log_warning("no answer from http://ada:secret@host/x: timeout");
  ASSERT_EQ(lines_.size(), 1U);
  EXPECT_THAT(lines_[0], ::testing::EndsWith("no answer from http://***@host/x: timeout"));
}

TEST_F(Log, NamesTheLevel) {
  set_log_level(LogLevel::kDebug);
  log_debug("a");
  log_info("b");
  log_warning("c");
  log_error("d");
  EXPECT_EQ(lines_, (std::vector<std::string>{"debug: a", "info: b", "warning: c", "error: d"}));
  set_log_rank(0);
  log_error("e");
  EXPECT_EQ(lines_.back(), "[rank 0] error: e");
  set_log_level(LogLevel::kError);
  log_warning("f");
  EXPECT_EQ(lines_.back(), "[rank 0] error: e");
  EXPECT_TRUE(log_enabled(LogLevel::kError));
  EXPECT_FALSE(log_enabled(LogLevel::kWarning));
}

TEST_F(Log, CarriesTheRank) {
  set_log_level(LogLevel::kInfo);
  set_log_rank(3);
  log_info("hello");
  ASSERT_EQ(lines_.size(), 1U);
  EXPECT_THAT(lines_[0], ::testing::StartsWith("[rank 3] "));
}

TEST_F(Log, GoesToStandardErrorWithoutASink) {
  set_log_sink(nullptr);
  ::testing::internal::CaptureStderr();
  log_warning("one");
  log_error("two");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "warning: one\nerror: two\n");
  EXPECT_TRUE(lines_.empty());
}

TEST_F(Log, GivesItsSinkTheLevel) {
  std::vector<LogLevel> levels;
  set_log_sink([&](LogLevel level, const std::string&) { levels.push_back(level); });
  log_error("a");
  log_warning("b");
  EXPECT_EQ(levels, (std::vector<LogLevel>{LogLevel::kError, LogLevel::kWarning}));
}

// A process reads the variable when it first needs the level, so each name needs a process.
TEST(LogLevelOfTheEnvironment, IsTheOneThatIsNamed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::pair<const char*, LogLevel> cases[] = {{"debug", LogLevel::kDebug},
                                                    {"info", LogLevel::kInfo},
                                                    {"warning", LogLevel::kWarning},
                                                    {"error", LogLevel::kError},
                                                    {"loud", LogLevel::kWarning}};
  const auto least_level = [] {
    int level = 0;
    while (!log_enabled(static_cast<LogLevel>(level))) ++level;
    return level;
  };
  for (const auto& [name, level] : cases) {
    setenv("LOCKSTEP_LOG_LEVEL", name, 1);
    EXPECT_EXIT(std::exit(least_level()), ::testing::ExitedWithCode(static_cast<int>(level)), "")
        << name;
  }
  unsetenv("LOCKSTEP_LOG_LEVEL");
}

}  // namespace
}  // namespace lockstep
