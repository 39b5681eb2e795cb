#include <lockstep/core/atomic_folder.h>

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <tests/core/replaced_fsync.h>
#include <tests/support/messages.h>
#include <tests/support/process_usage.h>
#include <tests/support/temporary_directory.h>

namespace lockstep {
namespace {

// Replaces the kernel's exchange of two names. Returns an errno value.
std::function<int(const char* fresh, const char* path)> exchange_instead;

}  // namespace
}  // namespace lockstep

// Replaces the C library's renameat2(), to simulate file systems that this host does not have.
extern "C" [[gnu::visibility("default")]] int renameat2(int from, const char* old_name, int to,
                                                        const char* new_name,
                                                        unsigned int flags) noexcept {
  if ((flags & RENAME_EXCHANGE) != 0 && lockstep::exchange_instead) {
    errno = lockstep::exchange_instead(old_name, new_name);
    return -1;
  }
  return static_cast<int>(syscall(SYS_renameat2, from, old_name, to, new_name, flags));
}

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing_support::as_bytes;
using testing_support::message_of;
using testing_support::read_text;
using testing_support::TemporaryDirectory;

void make_folder(const fs::path& path, std::string_view content) {
  AtomicFolder folder(path);
  folder.write("file", {as_bytes(content)});
  folder.commit();
}

TEST(AtomicFolder, IsSeenWhenItIsWhole) {
  const TemporaryDirectory parent;
  {
    AtomicFolder folder(parent / "a");
    folder.write("one", {as_bytes("first "), as_bytes(""), as_bytes("second")});
    folder.write("two", {});
    EXPECT_THAT(parent.names(), ElementsAre(".tmp-a"));
    EXPECT_EQ(folder.temporary(), parent / ".tmp-a");
    folder.commit();
    EXPECT_THAT(parent.names(), ElementsAre("a"));
  }
  EXPECT_EQ(read_text(parent / "a/one"), "first second");
  EXPECT_EQ(fs::file_size(parent / "a/two"), 0U);
  EXPECT_EQ(std::distance(fs::directory_iterator(parent / "a"), {}), 2);
}

TEST(AtomicFolder, LeavesNothingWithoutACommit) {
  const TemporaryDirectory parent;
  {
    const AtomicFolder folder(parent / "a");
    folder.write("file", {as_bytes("half")});
  }
  EXPECT_THAT(parent.names(), IsEmpty());
}

TEST(AtomicFolder, TakesThePlaceOfAnother) {
  const TemporaryDirectory parent;
  make_folder(parent / "a", "old");
  {
    const AtomicFolder folder(parent / "a");
    folder.write("file", {as_bytes("half")});
  }
  EXPECT_EQ(read_text(parent / "a/file"), "old");
  make_folder(parent / "a", "new");
  EXPECT_EQ(read_text(parent / "a/file"), "new");
  EXPECT_THAT(parent.names(), ElementsAre("a"));
}

// A folder that was committed is no longer the object's, and another may be written under its name.
TEST(AtomicFolder, LeavesItsTemporaryNameToTheNextOne) {
  const TemporaryDirectory parent;
  std::optional<AtomicFolder> first(std::in_place, parent / "a");
  first->write("file", {as_bytes("first")});
  first->commit();
  AtomicFolder second(parent / "a");
  second.write("file", {as_bytes("second")});
  first.reset();
  EXPECT_THAT(parent.names(), ElementsAre(".tmp-a", "a"));
  EXPECT_EQ(read_text(parent / "a/file"), "first");
  second.commit();
  EXPECT_EQ(read_text(parent / "a/file"), "second");
  EXPECT_THAT(parent.names(), ElementsAre("a"));
}

class WithoutExchange : public ::testing::TestWithParam<int> {
 protected:
  ~WithoutExchange() override { exchange_instead = nullptr; }
};

INSTANTIATE_TEST_SUITE_P(Errors, WithoutExchange, ::testing::Values(EINVAL, ENOSYS, EOPNOTSUPP));

TEST_P(WithoutExchange, AFolderTakesThePlaceOfAnother) {
  const TemporaryDirectory parent;
  make_folder(parent / "a", "old");
  parent.write(".tmp-replaced-a/file", "left by a process that was killed");
  bool asked = false;
  exchange_instead = [&](const char*, const char*) {
    asked = true;
    return GetParam();
  };
  make_folder(parent / "a", "new");
  EXPECT_TRUE(asked);
  EXPECT_EQ(read_text(parent / "a/file"), "new");
  EXPECT_THAT(parent.names(), ElementsAre("a"));
}

TEST_P(WithoutExchange, TheOldFolderGetsItsNameBackWhenTheNewOneCannotHaveIt) {
  const TemporaryDirectory parent;
  make_folder(parent / "a", "old");
  exchange_instead = [&](const char* fresh, const char*) {
    fs::remove_all(fresh);
    return GetParam();
  };
  EXPECT_THROW(make_folder(parent / "a", "new"), DataError);
  EXPECT_EQ(read_text(parent / "a/file"), "old");
  EXPECT_THAT(parent.names(), ElementsAre("a"));
}

// The fallback, which moves the old folder away, is only for file systems without the exchange.
// After any other error the old folder keeps its name.
TEST_F(WithoutExchange, AnotherFailureLeavesTheOldFolder) {
  const TemporaryDirectory parent;
  make_folder(parent / "a", "old");
  exchange_instead = [](const char*, const char*) { return EIO; };
  EXPECT_THROW(make_folder(parent / "a", "new"), DataError);
  EXPECT_EQ(read_text(parent / "a/file"), "old");
  EXPECT_THAT(parent.names(), ElementsAre("a"));
}

TEST(AtomicFolder, IsLeftToTheProcessThatMadeIt) {
  const TemporaryDirectory parent;
  AtomicFolder folder(parent / "a");
  const pid_t child = fork();
  if (child == 0) {
    folder.~AtomicFolder();
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  EXPECT_THAT(parent.names(), ElementsAre(".tmp-a"));
}

TEST(AtomicFolder, SaysWhyItCannotBeMadeOrNamed) {
  const TemporaryDirectory parent;
  EXPECT_THROW(AtomicFolder(parent / "nowhere/a"), DataError);
  parent.write("a", "a file");
  AtomicFolder folder(parent / "a");
  EXPECT_THROW(folder.commit(), DataError);
  EXPECT_EQ(read_text(parent / "a"), "a file");
}

TEST(AtomicFolder, IsCleanedUpAfterAKilledProcess) {
  const TemporaryDirectory parent;
  const auto of_one_letter = [](const std::string& name) { return name.size() == 1; };
  parent.write(".tmp-a/file", "half");
  parent.write(".tmp-removed-b/file", "half");
  parent.write(".tmp-replaced-c/file", "old");
  parent.write("c/file", "whole");
  for (const char* others : {".tmp-other/file", ".tmp-removed-other/file", ".tmp-", "other/file"}) {
    parent.write(others, "of another program");
  }
  recover_folders(parent.path(), of_one_letter);
  EXPECT_THAT(parent.names(),
              ElementsAre(".tmp-", ".tmp-other", ".tmp-removed-other", "c", "other"));
  EXPECT_EQ(read_text(parent / "c/file"), "whole");
  recover_folders(parent / "nowhere", of_one_letter);
  parent.write(".tmp-a/file", "half");
  make_folder(parent / "a", "whole");
  EXPECT_EQ(read_text(parent / "a/file"), "whole");
  EXPECT_FALSE(fs::exists(parent / ".tmp-a"));
}

// The state left by a process that was killed between the two renames on a file system without the
// exchange.
TEST(AtomicFolder, GivesAFolderThatWasSetAsideItsNameBack) {
  const TemporaryDirectory parent;
  const auto is_a = [](const std::string& name) { return name == "a"; };
  EXPECT_FALSE(has_folder_set_aside(parent / "nowhere", is_a));
  parent.write(".tmp-a/file", "new");
  parent.write(".tmp-removed-a/file", "removed");
  parent.write(".tmp-replaced-b/file", "of another program");
  EXPECT_FALSE(has_folder_set_aside(parent.path(), is_a));
  parent.write(".tmp-replaced-a/file", "old");
  EXPECT_TRUE(has_folder_set_aside(parent.path(), is_a));
  EXPECT_THAT(parent.names(),
              ElementsAre(".tmp-a", ".tmp-removed-a", ".tmp-replaced-a", ".tmp-replaced-b"));
  recover_folders(parent.path(), is_a);
  EXPECT_THAT(parent.names(), ElementsAre(".tmp-replaced-b", "a"));
  EXPECT_EQ(read_text(parent / "a/file"), "old");
  parent.write(".tmp-replaced-a/file", "older");
  EXPECT_FALSE(has_folder_set_aside(parent.path(), is_a)) << "the name is taken";
}

TEST(RemoveFolder, RemovesAllThatIsInIt) {
  const TemporaryDirectory parent;
  parent.write("a/b/c", "deep");
  remove_folder(parent / "a");
  EXPECT_THAT(parent.names(), IsEmpty());
  EXPECT_EQ(message_of<DataError>([&] { remove_folder(parent / "a"); }),
            "cannot remove " + (parent / "a").string() + ": No such file or directory");
  parent.write(".tmp-removed-a/b", "left by a process that was killed");
  parent.write("a/b", "new");
  remove_folder(parent / "a");
  EXPECT_THAT(parent.names(), IsEmpty());
}

class Flushes : public ::testing::Test {
 protected:
  ~Flushes() override { testing_support::on_fsync = nullptr; }

  // Replaces the flush of a path. `flush` returns an errno value, 0 for success.
  static void flush_by(std::function<int(const std::string& path)> flush) {
    testing_support::on_fsync = [flush = std::move(flush)](int fd) {
      errno = flush(fs::read_symlink("/proc/self/fd/" + std::to_string(fd)).string());
      return errno == 0 ? 0 : -1;
    };
  }
};

// A name survives a crash of the machine only if its folder is flushed after it was given, and what
// it names before.
TEST_F(Flushes, FollowEveryNewName) {
  const TemporaryDirectory parent;
  const std::string here = fs::canonical(parent.path()).string();
  std::vector<std::string> flushed;
  flush_by([&](const std::string& path) {
    flushed.push_back(path);
    return 0;
  });
  for (const char* time : {"the first time", "in place of another"}) {
    flushed.clear();
    AtomicFolder folder(parent / "a");
    EXPECT_THAT(flushed, IsEmpty()) << time;
    folder.commit();
    EXPECT_THAT(flushed, ElementsAre(here + "/.tmp-a", here)) << time;
  }
  flushed.clear();
  replace_link(parent / "link", "a");
  EXPECT_THAT(flushed, ElementsAre(here));
}

TEST_F(Flushes, ThatAFileSystemDoesNotHaveAreNoFailure) {
  const TemporaryDirectory parent;
  const std::size_t before = testing_support::descriptor_count();
  flush_by([](const std::string&) { return EINVAL; });
  flush_names(parent.path());
  flush_by([](const std::string&) { return EIO; });
  EXPECT_EQ(message_of<DataError>([&] { flush_names(parent.path()); }),
            "cannot flush " + parent.path().string() + ": Input/output error");
  EXPECT_EQ(message_of<DataError>([&] { flush_names(parent / "nowhere"); }),
            "cannot flush " + (parent / "nowhere").string() + ": No such file or directory");
  parent.write("file", "not a folder");
  EXPECT_EQ(message_of<DataError>([&] { flush_names(parent / "file"); }),
            "cannot flush " + (parent / "file").string() + ": Not a directory");
  EXPECT_EQ(testing_support::descriptor_count(), before);
}

// A program that has closed its standard input gets the descriptor 0 for the folder.
TEST_F(Flushes, SucceedWithoutAStandardInput) {
  const TemporaryDirectory parent;
  const pid_t child = fork();
  if (child == 0) {
    close(STDIN_FILENO);
    try {
      flush_names(parent.path());
      _exit(fcntl(STDIN_FILENO, F_GETFD) < 0 ? 0 : 2);
    } catch (const DataError&) {
      _exit(1);
    }
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "1: an error, 2: the descriptor is still open";
}

TEST(ReplaceLink, ReplacesALinkAndAFile) {
  const TemporaryDirectory parent;
  parent.write("one", "1");
  parent.write("two", "2");
  parent.write("link", "was a file");
  for (const char* target : {"one", "two"}) {
    replace_link(parent / "link", target);
    EXPECT_EQ(fs::read_symlink(parent / "link"), target);
    EXPECT_EQ(read_text(parent / "link"), read_text(parent / target));
  }
  EXPECT_THAT(parent.names(), ElementsAre("link", "one", "two"));
  fs::create_directory(parent / "folder");
  EXPECT_EQ(message_of<DataError>([&] { replace_link(parent / "folder", "one"); }),
            "cannot make the link " + (parent / "folder").string() + ": Is a directory");
  EXPECT_EQ(
      message_of<DataError>([&] { replace_link(parent / "nowhere/link", "one"); }),
      "cannot make the link " + (parent / "nowhere/link").string() + ": No such file or directory");
  EXPECT_THAT(parent.names(), ElementsAre("folder", "link", "one", "two"));
}

}  // namespace
}  // namespace lockstep
