#include <lockstep/core/append_file.h>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <utility>

#include <lockstep/core/error.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

TEST(AppendFile, ShowsEachRecordAtOnce) {
  const TemporaryDirectory directory;
  AppendFile file(directory / "log", AppendMode::kCreate);
  file.append("one\n");
  EXPECT_EQ(read_text(directory / "log"), "one\n");
  file.append("two\n");
  EXPECT_EQ(read_text(directory / "log"), "one\ntwo\n");
  EXPECT_EQ(file.size(), 8U);
}

TEST(AppendFile, ContinuesAFileAndCreatesAMissingOne) {
  const TemporaryDirectory directory;
  directory.write("log", "one\n");
  AppendFile file(directory / "log", AppendMode::kContinue);
  EXPECT_EQ(file.size(), 4U);
  file.append("two\n");
  EXPECT_EQ(read_text(directory / "log"), "one\ntwo\n");
  AppendFile(directory / "new", AppendMode::kContinue).append("x");
  EXPECT_EQ(read_text(directory / "new"), "x");
}

TEST(AppendFile, DoesNotTouchAFileThatShouldBeNew) {
  const TemporaryDirectory directory;
  directory.write("log", "precious");
  const std::string path = (directory / "log").string();
  EXPECT_EQ(message_of<DataError>([&] { AppendFile(path, AppendMode::kCreate); }),
            "cannot write " + path + ": File exists");
  EXPECT_EQ(read_text(path), "precious");
}

TEST(AppendFile, MovesWithItsDescriptor) {
  const TemporaryDirectory directory;
  AppendFile first(directory / "log", AppendMode::kCreate);
  first.append("a");
  AppendFile second(std::move(first));
  second.append("b");
  EXPECT_EQ(second.size(), 2U);
  EXPECT_EQ(read_text(directory / "log"), "ab");
}

TEST(AppendFile, IsReplacedTogetherWithItsSize) {
  const TemporaryDirectory directory;
  AppendFile one(directory / "one", AppendMode::kCreate);
  AppendFile two(directory / "two", AppendMode::kCreate);
  one.append("a");
  two.append("bcd");
  one = std::move(two);
  EXPECT_EQ(one.size(), 3U);
  one.append("e");
  EXPECT_EQ(one.size(), 4U);
  EXPECT_EQ(read_text(directory / "one"), "a");
  EXPECT_EQ(read_text(directory / "two"), "bcde");
}

TEST(AppendFile, NamesAFullDisk) {
  AppendFile file("/dev/full", AppendMode::kContinue);
  EXPECT_EQ(message_of<DataError>([&] { file.append("x"); }),
            "cannot write /dev/full: No space left on device");
}

// The system accepts two bytes of the second record and refuses the rest.
TEST(AppendFile, LeavesNoPartOfARecordBehind) {
  const TemporaryDirectory directory;
  AppendFile file(directory / "log", AppendMode::kCreate);
  file.append("12345678");
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 10;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message = message_of<DataError>([&] { file.append("abcdefgh"); });
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, SIG_DFL);
  EXPECT_EQ(message, "cannot write " + (directory / "log").string() + ": File too large");
  EXPECT_EQ(read_text(directory / "log"), "12345678");
  file.append("i");
  EXPECT_EQ(read_text(directory / "log"), "12345678i");
}

}  // namespace
}  // namespace lockstep::testing_support
