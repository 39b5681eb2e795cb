#include <lockstep/core/file.h>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <lockstep/core/append_file.h>
#include <lockstep/core/atomic_file.h>
#include <lockstep/core/atomic_folder.h>
#include <lockstep/core/directory.h>
#include <lockstep/core/error.h>
#include <lockstep/core/file_lock.h>
#include <tests/core/replaced_fsync.h>
#include <tests/support/messages.h>
#include <tests/support/process_usage.h>
#include <tests/support/temporary_directory.h>

// Replaces the C library's fsync() in this program, so that a test sees what is flushed, and when.
extern "C" [[gnu::visibility("default")]] int fsync(int fd) {
  const auto& instead = lockstep::testing_support::on_fsync;
  return instead ? instead(fd) : static_cast<int>(syscall(SYS_fsync, fd));
}

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing_support::message_of;
using testing_support::on_fsync;
using testing_support::read_text;
using testing_support::TemporaryDirectory;

TEST(FolderOf, ANameAloneIsTheCurrentOne) {
  EXPECT_EQ(folder_of("run.json"), ".");
  EXPECT_EQ(folder_of("runs/run.json"), "runs");
  EXPECT_EQ(folder_of("/run.json"), "/");
}

TEST(MappedFile, ShowsTheWholeFileAndSurvivesMoving) {
  const TemporaryDirectory directory;
  directory.write("file", "content");
  MappedFile file(directory / "file");
  const MappedFile moved(std::move(file));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(moved.bytes().data()), moved.bytes().size()),
            "content");
  EXPECT_TRUE(file.bytes().empty());
}

// The number of this process's open descriptors, and that of its maps of files in `directory`.
std::pair<std::size_t, std::size_t> open_and_mapped(const TemporaryDirectory& directory) {
  const std::string maps = read_text("/proc/self/maps");
  const std::string folder = std::filesystem::canonical(directory.path()).string();
  std::size_t mapped = 0;
  for (auto at = maps.find(folder); at != std::string::npos; at = maps.find(folder, at + 1)) {
    ++mapped;
  }
  return {testing_support::descriptor_count(), mapped};
}

TEST(Files, LeaveNothingOpenOrMapped) {
  const TemporaryDirectory directory;
  directory.write("file", "content");
  directory.write("empty", "");
  directory.write("folder/inside", "x");
  ASSERT_EQ(mkfifo((directory / "pipe").c_str(), 0600), 0);
  struct Use {
    const char* name;
    std::function<void()> call;
  };
  const Use uses[] = {
      {"a map",
       [&] {
         const auto [open, mapped] = open_and_mapped(directory);
         const MappedFile file(directory / "file");
         EXPECT_EQ(open_and_mapped(directory), std::pair(open + 1, mapped + 1));
       }},
      {"a map that moves",
       [&] {
         MappedFile file(directory / "file");
         const MappedFile moved(std::move(file));
       }},
      {"a map of nothing", [&] { const MappedFile file(directory / "empty"); }},
      {"a map of a folder", [&] { const MappedFile file(directory / "folder"); }},
      {"a map of a pipe", [&] { const MappedFile file(directory / "pipe"); }},
      {"a whole file",
       [&] {
         std::vector<std::byte> content;
         read_file(directory / "file", 7, content);
       }},
      {"a file that is too large",
       [&] {
         std::vector<std::byte> content;
         read_file(directory / "file", 6, content);
       }},
      {"an atomic file", [&] { write_file_atomically(directory / "atomic", "x"); }},
      {"an atomic file that is given up",
       [&] { AtomicFile(directory / "atomic").write_at(0, "x"); }},
      {"an atomic file over a folder", [&] { write_file_atomically(directory / "folder", "x"); }},
      {"an atomic folder",
       [&] {
         AtomicFolder folder(directory / "whole");
         folder.write("file", {});
         folder.commit();
       }},
      {"an atomic folder that is given up",
       [&] { AtomicFolder(directory / "whole").write("file", {}); }},
      {"a link", [&] { replace_link(directory / "link", "file"); }},
      {"a probe", [&] { make_writable_directory(directory.path()); }},
      {"a list", [&] { list_directory(directory.path()); }},
      {"records", [&] { AppendFile(directory / "records", AppendMode::kContinue).append("x"); }},
      {"records that move",
       [&] {
         AppendFile first(directory / "records", AppendMode::kContinue);
         AppendFile second(std::move(first));
         second = AppendFile(directory / "more records", AppendMode::kContinue);
       }},
      {"a lock", [&] { const FileLock lock(directory / "lock", "x"); }},
      {"a lock that is taken",
       [&] {
         const FileLock lock(directory / "lock", "x");
         EXPECT_THROW(FileLock(directory / "lock", "x"), ConfigError);
       }},
  };
  for (const Use& use : uses) {
    const auto before = open_and_mapped(directory);
    try {
      use.call();
    } catch (const DataError&) {
      // Some of these uses fail, which must not leave anything open either.
    }
    EXPECT_EQ(open_and_mapped(directory), before) << use.name;
  }
}

std::set<int> open_descriptors() {
  constexpr int kMost = 1024;
  std::set<int> numbers;
  for (int fd = 0; fd < kMost; ++fd) {
    if (fcntl(fd, F_GETFD) >= 0) numbers.insert(fd);
  }
  return numbers;
}

// A program that this one starts, such as a rank, would otherwise hold its files open.
TEST(Files, AreNotLeftToOtherPrograms) {
  const TemporaryDirectory directory;
  directory.write("file", "content");
  const std::set<int> before = open_descriptors();
  const MappedFile map(directory / "file");
  const AtomicFile atomic(directory / "atomic");
  const AppendFile records(directory / "records", AppendMode::kCreate);
  const FileLock lock(directory / "lock", "x");
  std::size_t opened = 0;
  for (const int fd : open_descriptors()) {
    if (before.contains(fd)) continue;
    ++opened;
    EXPECT_NE(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0)
        << std::filesystem::read_symlink(str("/proc/self/fd/", fd));
  }
  EXPECT_EQ(opened, 4U);
}

// Other users of a folder may read its files, and take its lock, as far as the umask lets them.
TEST(Files, HaveTheModeThatAnyNewFileHas) {
  const TemporaryDirectory directory;
  const mode_t before = umask(022);
  {
    const AppendFile records(directory / "records", AppendMode::kCreate);
  }
  {
    const FileLock lock(directory / "lock", "x");
  }
  umask(before);
  for (const char* name : {"records", "lock"}) {
    struct stat info{};
    ASSERT_EQ(stat((directory / name).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0644U) << name;
  }
}

TEST(ReadFile, ReadsTheWholeFileIntoTheSameMemory) {
  const TemporaryDirectory directory;
  directory.write("file", "seven b");
  std::vector<std::byte> content(1000);
  const std::byte* const memory = content.data();
  read_file(directory / "file", 7, content);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(content.data()), content.size()), "seven b");
  EXPECT_EQ(content.data(), memory);
  EXPECT_THAT(message_of<DataError>([&] { read_file(directory / "file", 6, content); }),
              ::testing::HasSubstr("file: it has 7 bytes, expected at most 6"));
  EXPECT_THAT(message_of<DataError>([&] { read_file(directory.path(), 6, content); }),
              ::testing::HasSubstr("not a plain file"));
  EXPECT_THAT(message_of<DataError>([&] { read_file(directory / "none", 6, content); }),
              ::testing::HasSubstr("none: No such file"));
}

TEST(MappedFile, KnowsWhenTheFileIsCutShort) {
  const TemporaryDirectory directory;
  directory.write("file", "content");
  const MappedFile file(directory / "file");
  std::vector<std::byte> copy(4);
  EXPECT_TRUE(file.is_whole());
  ASSERT_TRUE(file.read_at(3, copy));
  EXPECT_EQ(copy.front(), std::byte{'t'});
  EXPECT_EQ(copy.back(), std::byte{'t'});
  EXPECT_FALSE(file.read_at(4, copy)) << "a byte too many";
  std::filesystem::resize_file(directory / "file", 6);
  EXPECT_FALSE(file.is_whole());
  EXPECT_FALSE(file.read_at(3, copy));
  EXPECT_TRUE(file.read_at(2, copy));
  directory.write("empty", "");
  EXPECT_TRUE(MappedFile(directory / "empty").is_whole());
}

// The files are sparse: they take no more than a few blocks of the disk.
TEST(Files, MayHaveMoreThan4GiB) {
  constexpr std::uint64_t kFar = (std::uint64_t{1} << 32) + 5000;
  const TemporaryDirectory directory;
  directory.write("probe", "");
  std::error_code error;
  std::filesystem::resize_file(directory / "probe", kFar, error);
  if (error) GTEST_SKIP() << "needs a file system with large sparse files: " << error.message();
  const auto path = directory / "large";
  {
    AtomicFile file(path);
    file.write_at(0, "first");
    file.write_at(kFar, "last");
    file.commit();
  }
  EXPECT_EQ(std::filesystem::file_size(path), kFar + 4);
  const MappedFile map(path);
  ASSERT_EQ(map.bytes().size(), kFar + 4);
  const auto* bytes = reinterpret_cast<const char*>(map.bytes().data());
  EXPECT_EQ(std::string(bytes, 5), "first");
  EXPECT_EQ(std::string(bytes + kFar, 4), "last");
  std::vector<std::byte> copy(4);
  ASSERT_TRUE(map.read_at(kFar, copy));
  EXPECT_EQ(copy.front(), std::byte{'l'});
  EXPECT_FALSE(map.read_at(kFar + 1, copy)) << "a byte too many";
  EXPECT_THAT(message_of<DataError>([&] { read_file(path, 1000, copy); }),
              HasSubstr("it has 4294972300 bytes, expected at most 1000"));

  std::filesystem::resize_file(path, kFar + 3);
  EXPECT_FALSE(map.is_whole());
  AppendFile records(path, AppendMode::kContinue);
  EXPECT_EQ(records.size(), kFar + 3);
  records.append("er");
  EXPECT_EQ(records.size(), kFar + 5);
  EXPECT_TRUE(map.is_whole());
  ASSERT_TRUE(map.read_at(kFar + 1, copy));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(copy.data()), 4), "aser");
}

TEST(MappedFile, AnEmptyFileIsAnEmptySpan) {
  const TemporaryDirectory directory;
  directory.write("empty", "");
  EXPECT_TRUE(MappedFile(directory / "empty").bytes().empty());
}

TEST(MappedFile, NamesWhatCannotBeRead) {
  const TemporaryDirectory directory;
  EXPECT_THAT(message_of<DataError>([&] { MappedFile file(directory / "absent"); }),
              HasSubstr((directory / "absent").string()));
  EXPECT_THAT(message_of<DataError>([&] { MappedFile file(directory.path()); }),
              HasSubstr("not a plain file"));
  ASSERT_EQ(mkfifo((directory / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(message_of<DataError>([&] { MappedFile file(directory / "pipe"); }),
              HasSubstr("not a plain file"));
}

TEST(WriteFileAtomically, CreatesAndReplaces) {
  const TemporaryDirectory directory;
  write_file_atomically(directory / "file", "old");
  write_file_atomically(directory / "file", "new content");
  EXPECT_EQ(read_text(directory / "file"), "new content");
  EXPECT_THAT(directory.names(), ElementsAre("file"));
}

TEST(WriteFileAtomically, GivesTheModeThatAnyNewFileHas) {
  const TemporaryDirectory directory;
  const mode_t before = umask(027);
  write_file_atomically(directory / "file", "x");
  umask(before);
  struct stat info{};
  ASSERT_EQ(stat((directory / "file").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0640U);
}

TEST(WriteFileAtomically, AFolderInTheWayIsAnErrorThatLeavesNothing) {
  const TemporaryDirectory directory;
  directory.write("target/inside", "kept");
  EXPECT_THAT(message_of<DataError>([&] { write_file_atomically(directory / "target", "x"); }),
              HasSubstr((directory / "target").string()));
  EXPECT_THAT(directory.names(), ElementsAre("target"));
  EXPECT_EQ(read_text(directory / "target/inside"), "kept");
}

TEST(WriteFileAtomically, AnAbsentFolderIsAnError) {
  const TemporaryDirectory directory;
  EXPECT_THROW(write_file_atomically(directory / "absent/file", "x"), DataError);
  EXPECT_THAT(directory.names(), IsEmpty());
}

// A limit on the file size simulates a full disk: write() fails halfway in both cases.
TEST(WriteFileAtomically, AFailureInTheMiddleKeepsTheOldContent) {
  const TemporaryDirectory directory;
  write_file_atomically(directory / "file", "old");
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    setrlimit(RLIMIT_FSIZE, &limit);
    const std::string text = message_of<DataError>(
        [&] { write_file_atomically(directory / "file", std::string(100'000, 'x')); });
    _exit(text.find("cannot write") != std::string::npos ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(read_text(directory / "file"), "old");
  EXPECT_THAT(directory.names(), ElementsAre("file"));
}

TEST(AtomicFile, TakesPiecesInAnyOrderAndIsSeenWhenItIsCommitted) {
  const TemporaryDirectory directory;
  directory.write("file", "old");
  {
    AtomicFile file(directory / "file");
    file.write_at(0, "lost");
  }
  EXPECT_EQ(read_text(directory / "file"), "old");
  AtomicFile file(directory / "file");
  file.write_at(5, "end");
  file.write_at(0, "new");
  EXPECT_EQ(read_text(directory / "file"), "old");
  file.commit();
  EXPECT_EQ(read_text(directory / "file"), std::string("new\0\0end", 8));
  EXPECT_THAT(directory.names(), ElementsAre("file"));
}

TEST(AtomicFile, IsOnTheDiskBeforeItHasItsName) {
  const TemporaryDirectory directory;
  directory.write("file", "old");
  std::vector<std::string> flushed;
  on_fsync = [&](int fd) {
    struct stat info{};
    fstat(fd, &info);
    flushed.push_back(str(info.st_size, " bytes beside '", read_text(directory / "file"), "'"));
    return static_cast<int>(syscall(SYS_fsync, fd));
  };
  write_file_atomically(directory / "file", "new content");
  on_fsync = nullptr;
  EXPECT_THAT(flushed, ElementsAre("11 bytes beside 'old'"));
  EXPECT_EQ(read_text(directory / "file"), "new content");
}

// What a crash after the commit leaves is the new folder: its files are on the disk before their
// names, and all names before the commit returns.
TEST(AtomicFolder, IsOnTheDiskWithItsNames) {
  const TemporaryDirectory directory;
  std::vector<std::string> flushed;
  on_fsync = [&](int fd) {
    const auto path = std::filesystem::read_symlink(str("/proc/self/fd/", fd));
    const bool is_parent = path == std::filesystem::canonical(directory.path());
    const std::string name = is_parent ? "the parent" : path.filename().string();
    flushed.push_back(name.substr(0, name.find(".tmp-", 1)));
    return 0;
  };
  AtomicFolder folder(directory / "a");
  folder.write("file", {});
  EXPECT_THAT(flushed, ElementsAre("file"));
  folder.commit();
  EXPECT_THAT(flushed, ElementsAre("file", ".tmp-a", "the parent"));
  flushed.clear();
  replace_link(directory / "link", "a");
  EXPECT_THAT(flushed, ElementsAre("the parent"));
  on_fsync = [](int) {
    errno = EINVAL;
    return -1;
  };
  flush_names(directory.path());  // a file system that cannot flush a folder
  on_fsync = [](int) {
    errno = EIO;
    return -1;
  };
  EXPECT_THAT(message_of<DataError>([&] { flush_names(directory.path()); }),
              HasSubstr("cannot flush " + directory.path().string() + ": Input/output error"));
  on_fsync = nullptr;
}

TEST(AtomicFile, KeepsTheOldContentWhenTheDiskFails) {
  const TemporaryDirectory directory;
  directory.write("file", "old");
  on_fsync = [](int) {
    errno = EIO;
    return -1;
  };
  EXPECT_THAT(message_of<DataError>([&] { write_file_atomically(directory / "file", "new"); }),
              ::testing::EndsWith("file: Input/output error"));
  on_fsync = nullptr;
  EXPECT_EQ(read_text(directory / "file"), "old");
  EXPECT_THAT(directory.names(), ElementsAre("file"));
}

TEST(AtomicFile, IsLeftToItsProcessByAForkedChild) {
  const TemporaryDirectory directory;
  std::optional<AtomicFile> file(std::in_place, directory / "file");
  file->write_at(0, "whole");
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    file.reset();
    _exit(0);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  file->commit();
  EXPECT_EQ(read_text(directory / "file"), "whole");
}

TEST(TemporaryBeside, RemovesWhatADeadProcessLeftAndNothingElse) {
  const TemporaryDirectory directory;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    directory.write(temporary_beside(directory / "file").filename().string(), "half");
    _exit(0);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  ASSERT_THAT(directory.names(), ElementsAre(HasSubstr("file.tmp-")));
  const std::string ours = temporary_beside(directory / "file").filename().string();
  EXPECT_THAT(directory.names(), IsEmpty());

  // Files that are in use, or belong to another host or another file, stay.
  const std::string host = ours.substr(0, ours.rfind('-', ours.rfind('-') - 1));
  const std::string gone = std::to_string(child);
  const std::vector<std::string> kept = {ours,
                                         "file.tmp-elsewhere-" + gone + "-0",
                                         host + "-" + gone + "-1-0",  // host "HOST-GONE"
                                         host + "-" + gone,
                                         host + "-" + gone + "-x",
                                         host + "-0-0",
                                         host + "--" + gone + "-0",
                                         host + "-x-0",
                                         "other" + host.substr(4) + "-" + gone + "-0"};
  for (const std::string& name : kept) directory.write(name, "half");
  write_file_atomically(directory / "file", "whole");
  EXPECT_THAT(directory.names(), ::testing::IsSupersetOf(kept));
  EXPECT_EQ(directory.names().size(), kept.size() + 1);
}

// A killed process may have had this process's number.
TEST(TemporaryBeside, IsNoNameThatIsTaken) {
  const TemporaryDirectory directory;
  const std::string first = temporary_beside(directory / "file").filename().string();
  const std::string before_number = first.substr(0, first.rfind('-') + 1);
  const int number = std::stoi(first.substr(before_number.size()));
  directory.write(before_number + std::to_string(number + 1), "half");
  std::filesystem::create_symlink("nowhere",
                                  directory / (before_number + std::to_string(number + 2)));
  EXPECT_EQ(temporary_beside(directory / "file").filename().string(),
            before_number + std::to_string(number + 3));
}

TEST(MakeWritableDirectory, CreatesParentsAndLeavesNoProbe) {
  const TemporaryDirectory directory;
  make_writable_directory(directory / "a/b");
  EXPECT_TRUE(std::filesystem::is_directory(directory / "a/b"));
  EXPECT_TRUE(std::filesystem::is_empty(directory / "a/b"));
}

TEST(MakeWritableDirectory, SaysWhyNot) {
  const TemporaryDirectory directory;
  directory.write("file", "x");
  EXPECT_THAT(message_of<ConfigError>([&] { make_writable_directory(directory / "file/sub"); }),
              HasSubstr((directory / "file/sub").string()));
  EXPECT_THAT(message_of<ConfigError>([&] { make_writable_directory("/proc/lockstep"); }),
              HasSubstr("/proc/lockstep"));
  EXPECT_THAT(message_of<ConfigError>([&] { make_writable_directory("/proc"); }),
              ::testing::StartsWith("cannot write into /proc: "));
}

}  // namespace
}  // namespace lockstep
