// Runs that are killed repeatedly, also during a checkpoint or on a full disk, and resumed each
// time. They must end bitwise equal to undisturbed runs.
//
// All training runs in forks of the test, which itself computes nothing, because forking with
// LibTorch's threads running is not safe.
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <lockstep/formats/safetensors.h>
#include <lockstep/train/checkpoints/checkpoint_folder.h>
#include <tests/cli/program_run.h>
#include <tests/support/captured_log.h>
#include <tests/support/mnist_files.h>
#include <tests/support/small_disk.h>
#include <tests/support/temporary_directory.h>
#include <tests/train/trainer/trainer_runs.h>

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;
using testing_support::in_child;
using testing_support::kNoMount;
using testing_support::mount_small_disk;
using testing_support::resize_disk;
using testing_support::TemporaryDirectory;

constexpr int kKills = 50;
constexpr std::int64_t kEpochs = 30;
constexpr std::int64_t kSteps = 6 * kEpochs;
constexpr int kPatience = 60'000;  // ms; longer than any operation takes

constexpr int kDiskIsFull = 3;      // the exit code of a training process
constexpr std::int64_t kFull = -1;  // reported in place of a step

class Draws {
 public:
  double below(double bound) { return std::uniform_real_distribution<double>(0, bound)(random_); }

 private:
  std::mt19937 random_{16};
};

void sleep_seconds(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

// --- Comparisons ---

Safetensors parsed(const std::string& bytes, const fs::path& file) {
  return parse_safetensors(testing_support::as_bytes(bytes), file.string());
}

// Compares weights, buffers, the moving average, the optimizer's state, and all metadata: the
// loader's position, the average's update count, and the settings.
void require_same_file(const fs::path& got, const fs::path& wanted) {
  const std::string got_bytes = testing_support::read_text(got);
  const std::string wanted_bytes = testing_support::read_text(wanted);
  const Safetensors one = parsed(got_bytes, got);
  const Safetensors other = parsed(wanted_bytes, wanted);
  LOCKSTEP_CHECK(one.metadata == other.metadata, got, ": the metadata differ");
  LOCKSTEP_CHECK(one.tensors.size() == other.tensors.size(), got, ": other tensors");
  for (const auto& [name, view] : other.tensors) {
    const auto found = one.tensors.find(name);
    LOCKSTEP_CHECK(found != one.tensors.end(), got, " has no ", name);
    LOCKSTEP_CHECK(std::ranges::equal(found->second.bytes, view.bytes), got, ": ", name,
                   " differs from that of the run that was not disturbed");
  }
  LOCKSTEP_CHECK(got_bytes == wanted_bytes, got, " differs from ", wanted);
}

// Compares the newest checkpoints in two folders.
void require_same_end(const fs::path& got, const fs::path& wanted, std::int64_t steps) {
  const testing_support::CapturedLog log;
  const FoundCheckpoint one = find_checkpoint(got);
  const FoundCheckpoint other = find_checkpoint(wanted);
  LOCKSTEP_CHECK(log.lines().empty(), log.lines().front());
  LOCKSTEP_CHECK(one.manifest.step == steps && other.manifest.step == steps, "the runs end at ",
                 one.manifest.step, " and ", other.manifest.step, ", expected ", steps);
  for (const char* file : {kModelFile, kTrainingFile}) {
    require_same_file(one.folder / file, other.folder / file);
  }
  const std::string bytes = testing_support::read_text(one.folder / kTrainingFile);
  for (const char* name : {"optimizer.exp_avg.conv1.weight", "optimizer.ema.conv1.weight"}) {
    LOCKSTEP_CHECK(parsed(bytes, one.folder).tensors.contains(name), "nothing of ", name);
  }
}

// Whether a checkpoint is being written or removed.
bool has_unfinished(const fs::path& directory) {
  std::error_code error;
  for (fs::directory_iterator entry(directory, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    if (entry->path().filename().string().starts_with(".tmp-")) return true;
  }
  return false;
}

// --- A Trainer run in its own process ---

// Reports each step to the test before the checkpoint that follows it is written.
struct ReportingListener : Listener {
  explicit ReportingListener(int pipe) : pipe_(pipe) {}
  void on_step(const StepReport& report) override {
    tell((report.epoch - 1) * report.steps_per_epoch + report.step);
    if (after_step) after_step();
  }
  void tell(std::int64_t value) const {
    if (write(pipe_, &value, sizeof(value)) != sizeof(value)) throw Error("the pipe is closed");
  }

  std::function<void()> after_step{};

 private:
  int pipe_;
};

struct Way {
  fs::path directory{};
  std::int64_t every_n_train_steps = 1;
  bool background = false;
  /// If not empty, the disk mounted there shrinks to two and a half checkpoints soon after the
  /// process starts.
  fs::path fills{};
};

// A disk size for two and a half checkpoints like the newest one in `directory`.
std::string little_room(const fs::path& directory) {
  std::uintmax_t pages = 0;
  for (const auto& entry : fs::directory_iterator(find_checkpoint(directory).folder)) {
    pages += (entry.file_size() + 4095) / 4096;
  }
  return std::to_string(pages * 4096 * 5 / 2);
}

// Trains to the end, starting from the newest checkpoint if there is one. Returns the exit code.
int train_life(const Way& way, int reports) {
  at::set_num_threads(1);
  TrainerOptions run = options(kEpochs);
  run.optimizer = AdamWOptions{.lr = 1e-3};
  run.ema_decay = 0.9;
  run.schedule = {.kind = ScheduleKind::kOneCycle, .cycle_momentum = true};
  run.checkpoints = {.directory = way.directory,
                     .every_n_train_steps = way.every_n_train_steps,
                     .keep_last = 2,
                     .background = way.background};
  run.resume = Resume::kAuto;
  ReportingListener listener(reports);
  bool fills = !way.fills.empty();
  const std::string room = fills ? little_room(way.directory) : "";
  listener.after_step = [&] {
    // Resizing fails while more space is in use by a checkpoint that is being written or removed.
    if (!fills || !resize_disk(way.fills, room)) return;
    fills = false;
    listener.tell(kFull);
  };
  run.listeners = {&listener};
  try {
    train(run);
  } catch (const CheckpointError& error) {
    const std::string text = error.what();
    if (text.find("No space left on device") != std::string::npos) return kDiskIsFull;
    if (text.find(": it needs room for ") != std::string::npos) return kDiskIsFull;
    throw;
  }
  return 0;
}

class Life {
 public:
  explicit Life(const Way& way) {
    int ends[2];
    LOCKSTEP_CHECK(pipe(ends) == 0, "no pipe");
    std::fflush(nullptr);
    pid_ = fork();
    LOCKSTEP_CHECK(pid_ >= 0, "no further process");
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      close(ends[0]);
      int code = 1;
      try {
        code = train_life(way, ends[1]);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
      }
      _exit(code);
    }
    close(ends[1]);
    pipe_ = ends[0];
  }
  ~Life() {
    if (pid_ > 0) finish(/*kills=*/true);
    close(pipe_);
  }
  Life(const Life&) = delete;
  Life& operator=(const Life&) = delete;

  /// Waits for the next report; returns nothing if the process has ended.
  std::optional<std::int64_t> next_report() {
    pollfd polled = {.fd = pipe_, .events = POLLIN, .revents = 0};
    LOCKSTEP_CHECK(poll(&polled, 1, kPatience) == 1, "the run stands still");
    std::int64_t value = 0;
    if (read(pipe_, &value, sizeof(value)) != sizeof(value)) return std::nullopt;
    if (value > 0) last_step_ = value;
    return value;
  }

  /// Whether the kill ended the process, rather than an earlier normal exit.
  bool was_killed() {
    const int status = finish(/*kills=*/true);
    return WIFSIGNALED(status);
  }

  /// The exit code, or -1 for a signal.
  int exit_code() {
    const int status = finish(/*kills=*/false);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  /// The last step that the process reported; valid after it has ended.
  std::int64_t last_step() const { return last_step_; }

 private:
  int finish(bool kills) {
    if (pid_ <= 0) return status_;
    if (kills) kill(pid_, SIGKILL);
    while (next_report()) {
    }
    waitpid(std::exchange(pid_, -1), &status_, 0);
    return status_;
  }

  pid_t pid_ = -1;
  int pipe_ = -1;
  int status_ = 0;
  std::int64_t last_step_ = 0;
};

// The durations in an undisturbed run.
struct Lengths {
  double start = 0;  // seconds from the start of the process to its first step
  double step = 0;   // seconds per step, including its checkpoint
};

Lengths train_undisturbed(const Way& way) {
  const Clock::time_point begin = Clock::now();
  Life life(way);
  LOCKSTEP_CHECK(life.next_report() == 1, "the first step is reported first");
  Lengths lengths{.start = seconds_since(begin)};
  const int code = life.exit_code();
  lengths.step = (seconds_since(begin) - lengths.start) / static_cast<double>(kSteps);
  LOCKSTEP_CHECK(code == 0, "the run that nobody disturbs ends with ", code);
  return lengths;
}

// Waits for a moment at which to kill the run: by turns during its start, somewhere in its first
// steps, and while a checkpoint is unfinished. Returns early if the process has ended.
void wait_for_moment(Life& life, int turn, const Way& way, const Lengths& lengths, Draws& draws) {
  if (turn % 3 == 0) return sleep_seconds(draws.below(lengths.start));
  life.next_report();
  if (turn % 3 == 1) return sleep_seconds(draws.below(4 * lengths.step));
  const Clock::time_point begin = Clock::now();
  while (!has_unfinished(way.directory) && seconds_since(begin) < 20 * lengths.step) {
    sleep_seconds(5e-5);
  }
  sleep_seconds(draws.below(lengths.step / 4));
}

// Only the step in progress may be lost, and with background writing the one before it.
void require_whole(const Way& way, std::int64_t reported) {
  const testing_support::CapturedLog log;
  const FoundCheckpoint found = find_checkpoint(way.directory);
  LOCKSTEP_CHECK(log.lines().empty(), log.lines().front());
  LOCKSTEP_CHECK(found.manifest.step >= reported - (way.background ? 2 : 1), "found step ",
                 found.manifest.step, " after step ", reported);
}

TEST(KilledTraining, EndsAsOneThatNobodyHasDisturbed) {
  const TemporaryDirectory scratch;
  const Way whole = {.directory = scratch / "whole"};
  const Lengths lengths = train_undisturbed(whole);
  Draws draws;
  int kills = 0;
  int unfinished = 0;
  int runs = 0;
  // On a busy machine, kills may come late and the run may end before the last one. Then another
  // run is killed.
  while (kills < kKills) {
    ASSERT_LT(runs, 10) << "only " << kills << " kills came in time";
    Way way = {.directory = scratch / str("run", runs++)};
    for (int lives = 0;; ++lives) {
      way.background = lives % 2 == 1;
      Life life(way);
      if (kills < kKills) wait_for_moment(life, kills, way, lengths, draws);
      if (kills == kKills || !life.was_killed()) {
        ASSERT_EQ(life.exit_code(), 0);
        break;
      }
      ++kills;
      unfinished += has_unfinished(way.directory) ? 1 : 0;
      require_whole(way, life.last_step());
    }
    require_same_end(way.directory, whole.directory, kSteps);
  }
  std::printf("%d kills in %d runs, %d of them while a checkpoint was written or removed\n", kills,
              runs, unfinished);
  EXPECT_GE(unfinished, 5);
}

// --- Runs on a disk that fills up ---

constexpr const char* kRoom = "64m";
constexpr int kKillsOnFullDisk = 10;
constexpr int kEndsOnFullDisk = 3;

// Runs in a process with its own disk. Files to be kept are copied to `scratch`.
int kill_on_full_disk(const fs::path& disk, const TemporaryDirectory& scratch) {
  const Lengths lengths = train_undisturbed({.directory = disk / "whole"});
  const fs::path whole = scratch / "whole";
  fs::copy(disk / "whole", whole, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  fs::remove_all(disk / "whole");
  Way way = {.directory = disk / "run"};
  Draws draws;
  int kills = 0;
  int ends = 0;
  {
    Life life(way);  // leaves a checkpoint to resume from
    LOCKSTEP_CHECK(life.next_report() == 1 && life.next_report() == 2, "the first steps");
    LOCKSTEP_CHECK(life.was_killed(), "the run has ended");
  }
  for (int lives = 0; kills < kKillsOnFullDisk || ends < kEndsOnFullDisk; ++lives) {
    LOCKSTEP_CHECK(lives < 60, "only ", kills, " kills and ", ends, " ends on a full disk");
    LOCKSTEP_CHECK(resize_disk(disk, kRoom), "no room");
    way.background = lives % 2 == 1;
    way.fills = disk;
    Life life(way);
    while (const auto report = life.next_report()) {
      if (*report == kFull) break;
    }
    if (kills < kKillsOnFullDisk) sleep_seconds(draws.below(lengths.step));
    if (kills < kKillsOnFullDisk && life.was_killed()) {
      ++kills;
    } else {
      const int code = life.exit_code();
      LOCKSTEP_CHECK(code == kDiskIsFull, "on a full disk the run ends with ", code);
      ++ends;
      // A resumed run checks for room on the disk before it trains.
      way.fills.clear();
      Life again(way);
      const int second = again.exit_code();
      LOCKSTEP_CHECK(second == kDiskIsFull && again.last_step() == 0, "the next one ends with ",
                     second, " after step ", again.last_step());
    }
    require_whole(way, life.last_step());
  }
  LOCKSTEP_CHECK(resize_disk(disk, kRoom), "no room");
  way.fills.clear();
  Life last(way);
  LOCKSTEP_CHECK(last.exit_code() == 0, "with room again the run ends with an error");
  require_same_end(way.directory, whole, kSteps);
  std::printf("%d kills and %d ends on a full disk\n", kills, ends);
  std::fflush(stdout);
  return 0;
}

TEST(KilledTraining, EndsAsOneThatNobodyHasDisturbedAfterAFullDisk) {
  const TemporaryDirectory scratch;
  const int code = in_child([&] {
    const fs::path disk = scratch / "disk";
    fs::create_directory(disk);
    return mount_small_disk(disk, kRoom) ? kill_on_full_disk(disk, scratch) : kNoMount;
  });
  if (code == kNoMount) GTEST_SKIP() << "cannot mount a file system here";
  EXPECT_EQ(code, 0);
}

// --- `lockstep train` on two ranks ---

constexpr int kProgramEpochs = 20;
constexpr int kProgramSteps = 4 * kProgramEpochs;
constexpr int kProgramKills = 5;

class KilledProgram {
 public:
  explicit KilledProgram(const TemporaryDirectory& scratch) : scratch_(scratch) {
    testing_support::write_mnist(data_, "train", 64);
    testing_support::write_mnist(data_, "t10k", 16);
  }

  testing_support::ProgramRun start(const fs::path& out, bool background) const {
    std::vector<std::string> words = {
        LOCKSTEP_PROGRAM, "train", "mnist", "--nproc-per-node", "2", "--accelerator", "cpu",
        "--threads",      "1"};
    const auto add = [&](const std::vector<std::string>& more) {
      words.insert(words.end(), more.begin(), more.end());
    };
    add({"--batch-size", "16", "--max-epochs", std::to_string(kProgramEpochs)});
    add({"--optimizer", "adamw", "--lr", "0.001", "--ema-decay", "0.9"});
    add({"--every-n-train-steps", "1", "--out", out.string()});
    if (background) add({"--background-checkpoints"});
    add({"--resume", "auto"});
    return testing_support::ProgramRun(words,
                                       {{"LOCKSTEP_DATA", data_.path().string()},
                                        {"XDG_CACHE_HOME", (scratch_ / "cache").string()}},
                                       [] { setpgid(0, 0); });
  }

 private:
  const TemporaryDirectory& scratch_;
  TemporaryDirectory data_;
};

// Waits until `latest` points to a checkpoint other than `before`, or the program has ended.
void wait_for_checkpoint(const fs::path& out, const fs::path& before, pid_t program) {
  std::error_code error;
  const Deadline deadline{Milliseconds(kPatience)};
  siginfo_t ended = {};
  while (fs::read_symlink(out / "checkpoints/latest", error) == before) {
    LOCKSTEP_CHECK(!deadline.expired(), "the program writes no checkpoint");
    const int result =
        waitid(P_PID, static_cast<id_t>(program), &ended, WEXITED | WNOHANG | WNOWAIT);
    if (result != 0 || ended.si_pid != 0) return;
    sleep_seconds(1e-3);
  }
}

// Waits until all processes of the program have ended, so that its folder is no longer locked.
testing_support::ProgramResult result_of(testing_support::ProgramRun& run) {
  testing_support::ProgramResult result = run.wait();
  while (waitpid(-1, nullptr, 0) > 0) {
  }
  return result;
}

TEST(KilledTraining, OfTheProgramOnTwoRanksEndsAsOneThatNobodyHasDisturbed) {
  const TemporaryDirectory scratch;
  const KilledProgram program(scratch);
  const fs::path whole = scratch / "whole";
  const Clock::time_point begin = Clock::now();
  testing_support::ProgramRun undisturbed = program.start(whole, /*background=*/false);
  wait_for_checkpoint(whole, {}, undisturbed.pid());
  Lengths lengths{.start = seconds_since(begin)};
  const testing_support::ProgramResult result = result_of(undisturbed);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  lengths.step = (seconds_since(begin) - lengths.start) / kProgramSteps;
  Draws draws;
  int kills = 0;
  int runs = 0;
  while (kills < kProgramKills) {
    ASSERT_LT(runs, 5) << "only " << kills << " kills came in time";
    const fs::path out = scratch / str("run", runs++);
    for (int lives = 0;; ++lives) {
      std::error_code error;
      const fs::path latest = fs::read_symlink(out / "checkpoints/latest", error);
      testing_support::ProgramRun run = program.start(out, /*background=*/lives % 2 == 1);
      setpgid(run.pid(), run.pid());  // in case the child has not called it yet
      if (kills < kProgramKills && kills % 3 == 2) sleep_seconds(draws.below(lengths.start));
      if (kills < kProgramKills && kills % 3 != 2) {
        wait_for_checkpoint(out, latest, run.pid());
        sleep_seconds(draws.below(8 * lengths.step));
      }
      if (kills < kProgramKills) kill(-run.pid(), SIGKILL);
      const testing_support::ProgramResult ended = result_of(run);
      if (ended.exit_code == 0) break;
      ASSERT_EQ(ended.exit_code, 128 + SIGKILL) << ended.err;
      ++kills;
    }
    require_same_end(out / "checkpoints", whole / "checkpoints", kProgramSteps);
    require_same_file(out / "checkpoint.safetensors", whole / "checkpoint.safetensors");
  }
  std::printf("%d kills in %d runs\n", kills, runs);
}

}  // namespace
}  // namespace lockstep::train
