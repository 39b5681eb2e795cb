// Checkpoints that were damaged, truncated by a full disk, or written by a killed process. The
// newest complete one is found, and damaged ones are named.
#include <poll.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <lockstep/formats/checkpoint_manifest.h>
#include <lockstep/formats/checksum.h>
#include <tests/support/captured_log.h>
#include <tests/support/messages.h>
#include <tests/support/small_disk.h>
#include <tests/support/temporary_directory.h>
#include <tests/train/checkpoints/stored_checkpoints.h>

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing_support::in_child;
using testing_support::kNoMount;
using testing_support::mount_small_disk;
using testing_support::read_text;

class DamagedCheckpoint : public ::testing::Test {
 protected:
  DamagedCheckpoint() {
    CheckpointStore store({.directory = directory});
    store.prepare();
    for (const std::int64_t step : {1, 2}) save_step(store, step, {{"loss", 0.5}});
  }

  // Replaces the file `name` of the newest checkpoint by `content`, and expects one warning that
  // names it and that the previous checkpoint is found.
  void expect_fallback(const std::string& name, const std::string& content,
                       const std::string& what) const {
    const fs::path path = newest / name;
    const std::string whole = read_text(path);
    ASSERT_NE(content, whole);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
    const testing_support::CapturedLog log;
    const FoundCheckpoint found = find_checkpoint(directory);
    EXPECT_EQ(found.folder, directory / "step-00000001") << name << ": " << what;
    EXPECT_THAT(found.damaged, ::testing::ElementsAre(newest)) << name << ": " << what;
    EXPECT_THAT(log.lines(),
                ::testing::ElementsAre(AllOf(HasSubstr(path.string() + " "),
                                             HasSubstr("; the checkpoint before it is tried"))))
        << name << ": " << what;
    std::ofstream(path, std::ios::binary | std::ios::trunc) << whole;
  }

  testing_support::TemporaryDirectory scratch;
  const fs::path directory = scratch / "checkpoints";
  const fs::path newest = directory / "step-00000002";
};

constexpr const char* kAllFiles[] = {kModelFile, kTrainingFile, kManifestFile};

TEST_F(DamagedCheckpoint, IsPassedOverWhenAFileIsTruncatedOrLonger) {
  for (const char* name : kAllFiles) {
    const std::string whole = read_text(newest / name);
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{1}, whole.size() / 2, whole.size() - 1}) {
      expect_fallback(name, whole.substr(0, size), str("cut to ", size));
    }
    expect_fallback(name, whole + '\0', "a byte longer");
    expect_fallback(name, whole + whole, "doubled");
  }
  EXPECT_EQ(find_checkpoint(directory).folder, newest) << "whole again";
}

// Flips every bit of the manifest, and bits throughout the other files.
TEST_F(DamagedCheckpoint, IsPassedOverWhenABitIsAnother) {
  for (const char* name : kAllFiles) {
    const std::string whole = read_text(newest / name);
    const std::size_t stride = std::string(name) == kManifestFile ? 1 : 61;
    for (std::size_t at = 0; at < whole.size(); at += stride) {
      for (int bit = 0; bit < 8; bit += stride == 1 ? 1 : 5) {
        std::string damaged = whole;
        damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
        expect_fallback(name, damaged, str("bit ", bit, " of byte ", at));
      }
    }
  }
  EXPECT_EQ(find_checkpoint(directory).folder, newest) << "whole again";
}

TEST_F(DamagedCheckpoint, IsPassedOverWhenAFileIsMissing) {
  for (const char* name : kAllFiles) {
    fs::rename(newest / name, scratch / "away");
    const testing_support::CapturedLog log;
    EXPECT_EQ(find_checkpoint(directory).folder, directory / "step-00000001");
    EXPECT_THAT(log.lines(),
                ::testing::ElementsAre(HasSubstr((newest / name).string() + " is missing")));
    fs::rename(scratch / "away", newest / name);
  }
}

TEST_F(DamagedCheckpoint, IsNamedWithWhatWasFoundAndExpected) {
  fs::resize_file(newest / kTrainingFile, 1000);
  try {
    verify_checkpoint(newest);
    FAIL() << "nothing was thrown";
  } catch (const CheckpointError& error) {
    EXPECT_EQ(error.what(),
              (newest / kTrainingFile).string() + " is damaged: it has 1000 bytes, expected 3000");
  }
}

TEST_F(DamagedCheckpoint, IsNamedWithItsChecksumsOrAsMissing) {
  const auto message_of_newest = [this] {
    return testing_support::message_of<CheckpointError>([this] { verify_checkpoint(newest); });
  };
  for (const char* name : {kModelFile, kTrainingFile}) {
    const fs::path path = newest / name;
    const std::string whole = read_text(path);
    std::string other = whole;
    other.back() = static_cast<char>(other.back() ^ 1);
    const auto digits = [](const std::string& content) {
      return formats::checksum_digits(formats::checksum(testing_support::as_bytes(content)));
    };
    std::ofstream(path, std::ios::binary | std::ios::trunc) << other;
    EXPECT_EQ(message_of_newest(), str(path.string(), " is damaged: its checksum is ",
                                       digits(other), ", expected ", digits(whole)));
    fs::remove(path);
    EXPECT_EQ(
        message_of_newest(),
        str(path.string(), " is missing; the manifest expects a file of ", whole.size(), " bytes"));
    std::ofstream(path, std::ios::binary | std::ios::trunc) << whole;
    EXPECT_EQ(message_of_newest(), "nothing was thrown");
  }
}

// The unreadable checkpoint may be the newest, so it is named before an older one is used.
TEST_F(DamagedCheckpoint, IsNamedWithoutALinkToIt) {
  fs::remove(directory / "latest");
  expect_fallback(kManifestFile, "{}", "no manifest");
}

// The checkpoint that the link leads to is tried before the unreadable one.
TEST_F(DamagedCheckpoint, IsIgnoredIfTheLinkLeadsToAWholeOne) {
  fs::remove(directory / kLatestLink);
  fs::create_symlink("step-00000001", directory / kLatestLink);
  std::ofstream(newest / kManifestFile, std::ios::trunc) << "{}";
  const testing_support::CapturedLog log;
  const FoundCheckpoint found = find_checkpoint(directory);
  EXPECT_EQ(found.folder, directory / "step-00000001");
  EXPECT_THAT(found.damaged, ::testing::IsEmpty());
  EXPECT_THAT(log.lines(), ::testing::IsEmpty());
}

TEST_F(DamagedCheckpoint, EndsTheRunWhenThereIsNoOther) {
  for (const char* step : {"step-00000001", "step-00000002"}) {
    fs::resize_file(directory / step / kModelFile, 5);
  }
  const testing_support::CapturedLog log;
  try {
    find_checkpoint(directory);
    FAIL() << "nothing was thrown";
  } catch (const CheckpointError& error) {
    EXPECT_THAT(
        error.what(),
        AllOf(HasSubstr("step-00000001/model.safetensors is damaged: it has 5 bytes, expected"),
              HasSubstr("holds no other checkpoint that is whole; begin a new run "
                        "with TrainerOptions::overwrite instead of TrainerOptions::resume, or in "
                        "another folder")));
  }
}

// --- A full disk ---

constexpr std::size_t kFileBytes = 100 << 10;  // a checkpoint has two such files: 200 KiB

// Exits with 0 if a third checkpoint of 200 KiB does not fit on the disk of `directory` and the
// first two stay intact.
int fill(const fs::path& directory) {
  CheckpointStore store({.directory = directory});
  store.prepare();
  for (const std::int64_t step : {1, 2}) save_step(store, step, {}, kFileBytes);
  try {
    save_step(store, 3, {}, 4 * kFileBytes);
    return 1;
  } catch (const CheckpointError& error) {
    const std::string text = error.what();
    if (text.find("cannot write the checkpoint: cannot write ") != 0) return 2;
  }
  if (names_in(directory) != std::vector<std::string>{"step-00000001", "step-00000002"}) return 3;
  if (!holds_step(find_checkpoint(directory).folder, 2, kFileBytes)) return 4;
  if (fs::exists(directory / ".tmp-step-00000003")) return 5;
  // A smaller checkpoint still fits.
  save_step(store, 4, {}, 1000);
  return holds_step(find_checkpoint(directory).folder, 4, 1000) ? 0 : 6;
}

TEST(FullDisk, LeavesTheCheckpointsBeforeWhole) {
  const testing_support::TemporaryDirectory scratch;
  const int code = in_child([&] {
    if (!mount_small_disk(scratch.path(), "700k")) return kNoMount;
    return fill(scratch / "checkpoints");
  });
  if (code == kNoMount) GTEST_SKIP() << "cannot mount a file system here";
  EXPECT_EQ(code, 0);
}

// Uses a process limit where no file system can be mounted.
TEST(FullDisk, OfAProcessLeavesTheCheckpointsBeforeWhole) {
  const testing_support::TemporaryDirectory scratch;
  EXPECT_EQ(in_child([&] {
              std::signal(SIGXFSZ, SIG_IGN);
              const rlimit limit = {3 * kFileBytes, 3 * kFileBytes};
              setrlimit(RLIMIT_FSIZE, &limit);
              return fill(scratch / "checkpoints");
            }),
            0);
}

// --- A folder that cannot be removed ---

// A file system mounted in the folder prevents its removal, as an open file does on NFS.
int keep_what_is_held(const fs::path& directory) {
  CheckpointStore store({.directory = directory, .keep_last = 1});
  store.prepare();
  save_step(store, 1);
  const fs::path held = directory / "step-00000001/held";
  fs::create_directory(held);
  if (mount("tmpfs", held.c_str(), "tmpfs", 0, "size=100k") != 0) return kNoMount;
  {
    const testing_support::CapturedLog log;
    save_step(store, 2);
    if (log.lines().size() != 1) return 1;
    if (log.lines()[0].find("; the run goes on, and tries again") == std::string::npos) return 2;
  }
  if (names_in(directory) != std::vector<std::string>{"step-00000002"}) return 3;
  const fs::path removed = directory / ".tmp-removed-step-00000001";
  if (umount((removed / "held").c_str()) != 0) return 4;
  save_step(store, 3);
  return fs::exists(removed) ? 5 : 0;
}

TEST(HeldCheckpoint, DoesNotEndTheRun) {
  const testing_support::TemporaryDirectory scratch;
  const int code = in_child([&] {
    if (!mount_small_disk(scratch.path(), "700k")) return kNoMount;
    return keep_what_is_held(scratch / "checkpoints");
  });
  if (code == kNoMount) GTEST_SKIP() << "cannot mount a file system here";
  EXPECT_EQ(code, 0);
}

// --- A process that is killed ---

// Writes checkpoints endlessly, starting from the one it finds, and reports each complete one.
// Skips those that do not fit on the disk.
[[noreturn]] void write_for_ever(const fs::path& directory, int reports) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  CheckpointStore store({.directory = directory, .save_top_k = 1});
  const auto path = store.resume();
  std::int64_t step = path ? read_manifest(*path).step : 0;
  store.prepare();
  for (;;) {
    ++step;
    try {
      save_step(store, step, {{"loss", 1.0 / static_cast<double>(step % 7 + 1)}}, 200'000);
    } catch (const CheckpointError& error) {
      if (std::string(error.what()).find("No space left") == std::string::npos) throw;
      continue;
    }
    if (write(reports, &step, sizeof(step)) != sizeof(step)) _exit(1);
  }
}

// The last step that is in the pipe.
std::int64_t last_report(int pipe) {
  std::int64_t last = 0;
  std::int64_t step = 0;
  while (read(pipe, &step, sizeof(step)) == sizeof(step)) last = step;
  return last;
}

struct Kills {
  std::int64_t reported = 0;  // the last step that was reported as complete
  int unfinished = 0;         // kills that interrupted a checkpoint
};

// Repeatedly kills a process that writes checkpoints into `directory`, and requires after each kill
// that the newest complete checkpoint is found intact. Runs in the test's process or in a child of
// it, and therefore throws on failure.
//
// The first process completes a checkpoint before it is killed. With `completes`, every second
// later process does so, too.
Kills kill_again_and_again(const fs::path& directory, int times, bool completes) {
  std::mt19937 random(7);
  Kills kills;
  for (int i = 0; i < times; ++i) {
    int ends[2];
    LOCKSTEP_CHECK(pipe(ends) == 0, "no pipe");
    const pid_t child = fork();
    if (child == 0) {
      try {
        write_for_ever(directory, ends[1]);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
      }
      _exit(1);
    }
    close(ends[1]);
    std::int64_t longest_microseconds = 40'000;
    if (i == 0 || (completes && i % 2 == 1)) {
      const Clock::time_point begin = Clock::now();
      pollfd report = {.fd = ends[0], .events = POLLIN, .revents = 0};
      LOCKSTEP_CHECK(poll(&report, 1, 30'000) == 1, "no checkpoint was completed");
      // Roughly the time of a checkpoint, so that the kill hits the next one.
      longest_microseconds = static_cast<std::int64_t>(seconds_since(begin) * 1e6) + 1;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % longest_microseconds));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    LOCKSTEP_CHECK(WIFSIGNALED(status), "the child ended by itself");
    kills.reported = std::max(kills.reported, last_report(ends[0]));
    close(ends[0]);
    const testing_support::CapturedLog log;
    const FoundCheckpoint found = find_checkpoint(directory);
    LOCKSTEP_CHECK(log.lines().empty(), log.lines().front());
    if (fs::exists(directory)) {
      for (const auto& entry : fs::directory_iterator(directory)) {
        kills.unfinished += entry.path().filename().string().starts_with(".tmp-") ? 1 : 0;
      }
    }
    if (found.folder.empty()) {
      LOCKSTEP_CHECK(kills.reported == 0, "step ", kills.reported, " is gone");
      continue;
    }
    LOCKSTEP_CHECK(found.manifest.step >= kills.reported, "found step ", found.manifest.step,
                   " after step ", kills.reported);
    LOCKSTEP_CHECK(holds_step(found.folder, found.manifest.step, 200'000), found.folder);
  }
  return kills;
}

TEST(KilledProcess, LeavesItsNewestCheckpointWhole) {
  const testing_support::TemporaryDirectory scratch;
  const Kills kills = kill_again_and_again(scratch / "checkpoints", 40, /*completes=*/true);
  EXPECT_GE(kills.reported, 20) << "each process goes on where the one before it was killed";
  EXPECT_GT(kills.unfinished, 2) << "kills fell into the writing";
}

// The disk has room for three checkpoints. Three are kept (the newest two and the best one), so
// that the next one does not fit.
TEST(KilledProcess, LeavesItsNewestCheckpointWholeOnAFullDisk) {
  const testing_support::TemporaryDirectory scratch;
  const int code = in_child([&] {
    if (!mount_small_disk(scratch.path(), "1400k")) return kNoMount;
    const Kills kills = kill_again_and_again(scratch / "checkpoints", 30, /*completes=*/false);
    return kills.reported > 0 && kills.unfinished > 0 ? 0 : 1;
  });
  if (code == kNoMount) GTEST_SKIP() << "cannot mount a file system here";
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace lockstep::train
