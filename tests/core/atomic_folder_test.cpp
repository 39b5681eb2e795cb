#include <lockstep/core/atomic_folder.h>

#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <tests/support/temporary_directory.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing_support::as_bytes;
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
  parent.write(".tmp-a/file", "half");
  parent.write(".tmp-removed-b/file", "half");
  parent.write("c/file", "whole");
  remove_unfinished_folders(parent.path());
  EXPECT_THAT(parent.names(), ElementsAre("c"));
  remove_unfinished_folders(parent / "nowhere");
  parent.write(".tmp-a/file", "half");
  make_folder(parent / "a", "whole");
  EXPECT_THAT(parent.names(), ElementsAre("a", "c"));
}

TEST(RemoveFolder, RemovesAllThatIsInIt) {
  const TemporaryDirectory parent;
  parent.write("a/b/c", "deep");
  remove_folder(parent / "a");
  EXPECT_THAT(parent.names(), IsEmpty());
  EXPECT_THROW(remove_folder(parent / "a"), DataError);
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
  EXPECT_THROW(replace_link(parent / "folder", "one"), DataError);
  EXPECT_THAT(parent.names(), ElementsAre("folder", "link", "one", "two"));
}

}  // namespace
}  // namespace lockstep
