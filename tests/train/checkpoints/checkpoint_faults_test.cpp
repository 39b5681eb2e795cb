// Checkpoints on a disk that fails or before a crash: no step of a save may lose an earlier one.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <lockstep/train/checkpoints/checkpoint_store.h>
#include <tests/support/captured_log.h>
#include <tests/support/messages.h>
#include <tests/train/checkpoints/stored_checkpoints.h>

namespace lockstep::train {
namespace {

bool refuses_links = false;                  // as on a disk without free inodes
bool changes_bytes = false;                  // changes bytes of the file that is flushed next
bool dies_at_removal = false;                // the process is killed when it removes a checkpoint
std::vector<std::string>* events = nullptr;  // disk operations in order

// Appends "WHAT NAME", without the suffix that a file has while it is being written.
void note_event(const char* what, const std::filesystem::path& path) {
  if (events == nullptr) return;
  const std::string name = path.filename();
  events->push_back(str(what, ' ', name.substr(0, name.find(".tmp-", 1))));
}

}  // namespace
}  // namespace lockstep::train

// Replaces the C library's functions, to simulate failing disks.
extern "C" [[gnu::visibility("default")]] int symlink(const char* target,
                                                      const char* link) noexcept {
  lockstep::train::note_event("link", link);
  if (!lockstep::train::refuses_links) {
    return static_cast<int>(syscall(SYS_symlinkat, target, AT_FDCWD, link));
  }
  errno = ENOSPC;
  return -1;
}

extern "C" [[gnu::visibility("default")]] int rename(const char* from, const char* to) noexcept {
  const bool removes = std::filesystem::path(to).filename().string().starts_with(".tmp-removed-");
  if (removes && lockstep::train::dies_at_removal) kill(getpid(), SIGKILL);
  lockstep::train::note_event("name", to);
  return static_cast<int>(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

extern "C" [[gnu::visibility("default")]] int fsync(int fd) {
  std::error_code error;
  lockstep::train::note_event(
      "flush", std::filesystem::read_symlink(lockstep::str("/proc/self/fd/", fd), error));
  struct stat info{};
  if (lockstep::train::changes_bytes && fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
    lockstep::train::changes_bytes = false;
    if (pwrite(fd, "?!", 2, info.st_size / 2) != 2) return -1;
  }
  return static_cast<int>(syscall(SYS_fsync, fd));
}

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string message_of_save(CheckpointStore& store, std::int64_t step) {
  return testing_support::message_of<CheckpointError>([&] { save_step(store, step); });
}

// Data are flushed before the file gets its name, and an old checkpoint is removed only after the
// new one is on disk. A crash of the machine therefore loses nothing.
TEST_F(CheckpointStoreTest, IsOnTheDiskBeforeItHasItsName) {
  CheckpointStore run = store({.keep_last = 1});
  save_step(run, 1);
  std::vector<std::string> seen;
  events = &seen;
  save_step(run, 2);
  events = nullptr;
  EXPECT_THAT(seen, ElementsAre("flush model.safetensors", "name model.safetensors",
                                "flush training.safetensors", "name training.safetensors",
                                "flush manifest.json", "name manifest.json",
                                "flush .tmp-step-00000002",                 // the three names
                                "name step-00000002", "flush checkpoints",  //
                                "link latest", "name latest", "flush checkpoints",
                                "name .tmp-removed-step-00000001"));
}

// Runs in a process that is killed just after it has pointed `latest` to the new checkpoint, when
// it begins to remove others.
void save_and_die(CheckpointStore& run, std::int64_t next) {
  const pid_t child = fork();
  if (child == 0) {
    dies_at_removal = true;
    save_step(run, next, {{"loss", 0.5}});
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status)) << "nothing was removed";
}

// The user resumes from step 1, although step 3 has the best loss.
TEST_F(CheckpointStoreTest, DoesNotTakeUpAgainWhatItHasLeftBehind) {
  const CheckpointOptions options = {.keep_last = 1, .save_top_k = 1};
  for (const int deaths : {1, 2}) {
    fs::remove_all(directory);
    CheckpointStore first = store({.keep_last = 3});
    save_step(first, 1, {{"loss", 0.5}});
    save_step(first, 2, {{"loss", 0.4}});
    save_step(first, 3, {{"loss", 0.1}});
    replace_link(directory / "latest", "step-00000001");
    for (int death = 0; death < deaths; ++death) {
      CheckpointStore killed = store(options);
      ASSERT_TRUE(killed.resume());
      save_and_die(killed, 4 + death);
    }
    const std::vector<std::string> names = names_in(directory);
    EXPECT_EQ(std::count(names.begin(), names.end(), "step-00000003"), 1) << "had not gone";
    EXPECT_EQ(fs::read_symlink(directory / "latest"), checkpoint_name(3 + deaths));
    CheckpointStore last = store(options);
    EXPECT_EQ(last.resume(), directory / checkpoint_name(3 + deaths));
    save_step(last, 10, {{"loss", 0.6}});
    EXPECT_THAT(names_in(directory), ElementsAre("step-00000001", "step-00000010")) << deaths;
    EXPECT_EQ(fs::read_symlink(directory / "best"), "step-00000001") << "the older of two";
  }
}

TEST_F(CheckpointStoreTest, LeavesTheOthersWholeWhenItCannotWrite) {
  CheckpointStore run = store({.keep_last = 1});
  save_step(run, 1);
  std::ofstream(directory / "step-00000002") << "in the way";
  EXPECT_THAT(message_of_save(run, 2), HasSubstr("cannot write the checkpoint: cannot write "));
  EXPECT_TRUE(holds_step(find_checkpoint(directory).folder, 1));
  EXPECT_FALSE(fs::exists(directory / ".tmp-step-00000002"));
  save_step(run, 3);
  EXPECT_TRUE(holds_step(find_checkpoint(directory).folder, 3));
}

// The bytes on disk differ from those that were checksummed.
TEST_F(CheckpointStoreTest, RemovesNothingBeforeTheNewOneIsVerified) {
  CheckpointStore run = store({.keep_last = 1});
  save_step(run, 1);
  changes_bytes = true;
  EXPECT_THAT(
      message_of_save(run, 2),
      AllOf(HasSubstr("cannot write the checkpoint " + (directory / "step-00000002").string()),
            HasSubstr("what was read back differs from what was written"),
            HasSubstr("model.safetensors is damaged: its checksum is ")));
  EXPECT_FALSE(changes_bytes) << "a file was flushed";
  EXPECT_THAT(names_in(directory), ElementsAre("step-00000001"));
  EXPECT_TRUE(holds_step(find_checkpoint(directory).folder, 1));
}

// A stale link would make the next run resume from an old checkpoint and remove the newer one.
TEST_F(CheckpointStoreTest, HasNoLinkToAnOldOneWhenItCannotBeTurned) {
  CheckpointStore run = store();
  save_step(run, 1);
  const testing_support::CapturedLog log;
  refuses_links = true;
  save_step(run, 2);
  refuses_links = false;
  EXPECT_THAT(log.lines(), ElementsAre(HasSubstr("the run goes on without it until its next")));
  EXPECT_FALSE(fs::exists(fs::symlink_status(directory / "latest")));
  EXPECT_EQ(find_checkpoint(directory).folder, directory / "step-00000002");
  save_step(run, 3);
  EXPECT_EQ(fs::read_symlink(directory / "latest"), "step-00000003");
}

}  // namespace
}  // namespace lockstep::train
