#include <lockstep/core/directory.h>

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing_support::message_of;
using testing_support::TemporaryDirectory;

TEST(ListDirectory, SortsFoldersAndFilesAndFollowsLinks) {
  const TemporaryDirectory directory;
  EXPECT_THAT(list_directory(directory.path()).folders, IsEmpty());
  directory.write("b/file", "x");
  directory.write("z", "x");
  directory.write(".hidden", "x");
  fs::create_directory_symlink("b", directory / "a link");
  fs::create_symlink("z", directory / "c link");
  fs::create_symlink("nowhere", directory / "dangling");
  fs::create_symlink("z/below", directory / "below a file");
  const DirectoryNames names = list_directory(directory.path());
  EXPECT_THAT(names.folders, ElementsAre("a link", "b"));
  EXPECT_THAT(names.files, ElementsAre(".hidden", "below a file", "c link", "dangling", "z"));
}

// A link that cannot be followed might lead to a folder.
TEST(ListDirectory, NamesWhatCannotBeRead) {
  const TemporaryDirectory directory;
  const std::string absent = (directory / "absent").string();
  EXPECT_EQ(message_of<DataError>([&] { list_directory(absent); }),
            "cannot read " + absent + ": No such file or directory");
  fs::create_symlink("loop", directory / "loop");
  EXPECT_EQ(message_of<DataError>([&] { list_directory(directory.path()); }),
            "cannot read " + (directory / "loop").string() + ": Too many levels of symbolic links");
}

}  // namespace
}  // namespace lockstep
