#include <lockstep/core/file_lock.h>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep {
namespace {

using testing_support::message_of;
using testing_support::TemporaryDirectory;

bool is_free(const std::filesystem::path& path) {
  return message_of<ConfigError>([&] { FileLock lock(path, "x"); }) == "nothing was thrown";
}

// A child that waits until it is killed.
pid_t fork_waiting_child() {
  const pid_t child = fork();
  if (child == 0) {
    while (true) pause();
  }
  return child;
}

void kill_and_reap(pid_t child) {
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
}

TEST(FileLock, IsHeldByOneAndNamesIt) {
  const TemporaryDirectory directory;
  {
    const FileLock lock(directory / "lock", "the folder");
    const std::string text =
        message_of<ConfigError>([&] { FileLock second(directory / "lock", "the folder"); });
    EXPECT_EQ(text, str("the folder is in use by process ", getpid(), " on ", host_name()));
    EXPECT_EQ(text.find('\n'), std::string::npos);
  }
  EXPECT_TRUE(is_free(directory / "lock"));
  EXPECT_TRUE(std::filesystem::exists(directory / "lock"));
}

TEST(FileLock, EndsWithTheLastProcessThatInheritedIt) {
  const TemporaryDirectory directory;
  auto lock = std::make_unique<FileLock>(directory / "lock", "x");
  const pid_t first = fork_waiting_child();
  const pid_t second = fork_waiting_child();
  lock.reset();
  EXPECT_FALSE(is_free(directory / "lock"));
  kill_and_reap(first);
  EXPECT_FALSE(is_free(directory / "lock"));
  kill_and_reap(second);
  EXPECT_TRUE(is_free(directory / "lock"));
}

// A child that exits normally does not release a lock that its parent holds.
TEST(FileLock, OutlivesAChild) {
  const TemporaryDirectory directory;
  auto lock = std::make_unique<FileLock>(directory / "lock", "x");
  const pid_t child = fork();
  if (child == 0) {
    lock.reset();
    _exit(0);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_FALSE(is_free(directory / "lock"));
}

// Several users may train in one folder, one after another.
TEST(FileLock, TakesAFileThatAnotherUserLeft) {
  const TemporaryDirectory directory;
  const auto path = directory / "lock";
  {
    const FileLock lock(path, "the folder");
  }
  std::filesystem::permissions(path, std::filesystem::perms(0444));
  std::filesystem::permissions(directory.path(), std::filesystem::perms(0755));
  const pid_t child = fork();
  if (child == 0) {
    if (getuid() == 0 && setuid(65534) != 0) _exit(2);
    _exit(is_free(path) ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(FileLock, SaysWhyItCannotBe) {
  const TemporaryDirectory directory;
  EXPECT_THAT(
      message_of<ConfigError>([&] { FileLock lock(directory / "no/lock", "the folder"); }),
      ::testing::MatchesRegex("the folder cannot be locked: .*no/lock: No such file or directory"));
}

// A holder's name may be shorter than that of the holder before.
TEST(FileLock, LeavesNothingOfAnEarlierHolder) {
  const TemporaryDirectory directory;
  directory.write("lock", std::string(300, 'x') + "\nmore");
  const FileLock lock(directory / "lock", "the folder");
  EXPECT_EQ(testing_support::read_text(directory / "lock"),
            str("process ", getpid(), " on ", host_name(), "\n"));
}

// Another program may have written anything into the file. The message has one readable line.
TEST(FileLock, NamesAHolderOnlyAsFarAsItIsText) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "another process"},
      {"\x01\x02", "another process"},
      {"\nprocess 5", "another process"},
      {"process 5 on here\nand more", "process 5 on here"},
      {"process ~ 5\tx", "process ~ 5"},
      {std::string(300, 'x'), std::string(200, 'x')}};
  const TemporaryDirectory directory;
  for (const auto& [content, holder] : cases) {
    directory.write("lock", content);
    const int fd = open((directory / "lock").c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_EQ(flock(fd, LOCK_EX | LOCK_NB), 0);
    EXPECT_EQ(message_of<ConfigError>([&] { FileLock lock(directory / "lock", "the folder"); }),
              "the folder is in use by " + holder);
    EXPECT_EQ(testing_support::read_text(directory / "lock"), content);
    close(fd);
  }
}

TEST(FileLock, CanBeAskedForWithoutTakingIt) {
  const TemporaryDirectory directory;
  const auto path = directory / "lock";
  EXPECT_EQ(is_locked(path), std::nullopt) << "no file";
  EXPECT_FALSE(std::filesystem::exists(path));
  auto lock = std::make_unique<FileLock>(path, "x");
  EXPECT_EQ(is_locked(path), true);
  const pid_t child = fork_waiting_child();
  lock.reset();
  EXPECT_EQ(is_locked(path), true) << "a child has inherited it";
  kill_and_reap(child);
  EXPECT_EQ(is_locked(path), false);
  EXPECT_TRUE(is_free(path)) << "the question leaves no lock";
}

// is_locked() holds a shared lock for a moment, which must not refuse a run that begins then.
TEST(FileLock, WaitsForAQuestionButNotForAHolder) {
  const TemporaryDirectory directory;
  directory.write("lock", "");
  const int reader = open((directory / "lock").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(flock(reader, LOCK_SH | LOCK_NB), 0);
  EXPECT_FALSE(is_free(directory / "lock"));
  std::thread asks([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    flock(reader, LOCK_UN);
  });
  EXPECT_TRUE(is_free(directory / "lock"));
  asks.join();
  close(reader);
}

}  // namespace
}  // namespace lockstep
