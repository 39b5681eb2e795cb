// Which files a run reads when it resumes, and that all ranks resume from one checkpoint.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/train/checkpoints/checkpoint.h>
#include <lockstep/train/checkpoints/checkpoint_folder.h>
#include <tests/support/captured_log.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>
#include <tests/train/trainer/trainer_runs.h>

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing_support::TemporaryDirectory;

// The bytes that this process has copied from files with system calls, without reads through memory
// maps; nothing if the kernel does not report them.
std::optional<std::int64_t> bytes_read() {
  std::ifstream file("/proc/self/io");
  std::string name;
  std::int64_t value = 0;
  while (file >> name >> value) {
    if (name == "rchar:") return value;
  }
  return std::nullopt;
}

// Verification copies the files of a checkpoint; loading memory-maps them.
TEST(CheckpointResume, VerifiesEachFileOnce) {
  if (!bytes_read()) GTEST_SKIP() << "the kernel does not count what is read";
  const TemporaryDirectory directory;
  TrainerOptions run = options(1);
  run.optimizer = AdamWOptions{};
  run.checkpoints.directory = directory / "checkpoints";
  train(run);
  const fs::path newest = run.checkpoints.directory / "step-00000006";
  const auto bytes = static_cast<std::int64_t>(fs::file_size(newest / kModelFile) +
                                               fs::file_size(newest / kTrainingFile));
  run.resume = true;
  const std::int64_t before = bytes_read().value();
  EXPECT_TRUE(train(run).report.already_complete) << "it writes and verifies no further one";
  const std::int64_t by_trainer = bytes_read().value() - before;
  EXPECT_GE(by_trainer, bytes);
  EXPECT_LT(by_trainer, bytes * 3 / 2);

  MnistNet net;
  const StateDict training = Optimizer(*net, run.optimizer).state();
  for (const fs::path& path : {run.checkpoints.directory, newest}) {
    const std::int64_t start = bytes_read().value();
    load_checkpoint(path, *net, training, "digits");
    const std::int64_t by_loop = bytes_read().value() - start;
    EXPECT_GE(by_loop, bytes) << path;
    EXPECT_LT(by_loop, bytes * 3 / 2) << path;
  }
}

// The file may change on disk between verification and loading.
TEST(CheckpointResume, FindsDamageThatCameAfterTheVerification) {
  const TemporaryDirectory directory;
  TrainerOptions run = options(1);
  run.checkpoints.directory = directory / "checkpoints";
  train(run);
  const fs::path newest = find_checkpoint(run.checkpoints.directory).folder;
  std::string content = testing_support::read_text(newest / kModelFile);
  content[content.size() - 100] ^= 1;
  std::ofstream(newest / kModelFile, std::ios::binary | std::ios::trunc) << content;
  MnistNet net;
  const StateDict training = Optimizer(*net, run.optimizer).state();
  EXPECT_THAT(testing_support::message_of<CheckpointError>([&] {
                load_checkpoint(newest, *net, training, "digits", FolderCheck::kVerified);
              }),
              AllOf(HasSubstr("model.safetensors: the tensor '"), HasSubstr("' is damaged")));
}

// Only rank 0 detects the damage. The others are told where to resume: at the end of an epoch, or
// within one.
TEST(CheckpointResume, GoesOnOnAllRanksFromTheOneBeforeADamagedOne) {
  TrainerOptions run = options(2);
  run.optimizer = AdamWOptions{.lr = 1e-3};
  const StateDict whole = train_ranks(2, "shm", "ddp", run).state;
  for (const std::int64_t good : {6, 4}) {
    const TemporaryDirectory directory;
    run.checkpoints = {
        .directory = directory / "checkpoints", .every_n_train_steps = 2, .keep_last = 3};
    run.max_steps = 8;
    run.resume = false;
    train_ranks(2, "shm", "ddp", run);
    std::vector<::testing::Matcher<std::string>> warnings;
    for (std::int64_t step = 8; step > good; step -= 2) {
      const fs::path file = run.checkpoints.directory / checkpoint_name(step) / kTrainingFile;
      fs::resize_file(file, fs::file_size(file) - 1);
      warnings.push_back(HasSubstr(file.string() + " is damaged"));
    }
    run.max_steps.reset();
    run.resume = true;
    CountingListener listener;
    run.listeners = {&listener};
    const testing_support::CapturedLog log;
    expect_equal_bits(train_ranks(2, "shm", "ddp", run).state, whole);
    run.listeners.clear();
    EXPECT_THAT(log.lines(), ::testing::ElementsAreArray(warnings));
    EXPECT_EQ(static_cast<std::int64_t>(listener.rates.size()), 12 - good) << "trains the rest";
    EXPECT_EQ(find_checkpoint(run.checkpoints.directory).manifest.step, 12);
  }
}

// A checkpoint within an epoch, after `step` of its steps, written by a loop of the user's that
// saved no position in the data.
fs::path checkpoint_after(std::int64_t step, const fs::path& directory) {
  const MnistNet net;
  const TrainerOptions run = options(2);
  const fs::path file = directory / "checkpoint.safetensors";
  save_checkpoint(file, *net, Optimizer(*net, run.optimizer).state(),
                  {.recipe = "digits", .epoch = 1, .step = step, .settings = {}});
  return file;
}

// An epoch of this run has six steps, or three of two batches.
TEST(CheckpointResume, RefusesAStepBeyondTheEpoch) {
  struct Case {
    std::int64_t step;
    std::int64_t accumulate;
    bool accepted;
  };
  const Case cases[] = {{5, 1, true},          {6, 1, false}, {7, 1, false},
                        {1'000'000, 1, false}, {2, 2, true},  {3, 2, false}};
  for (const Case& c : cases) {
    SCOPED_TRACE(str(c.step, " of ", 6 / c.accumulate));
    const TemporaryDirectory directory;
    TrainerOptions run = options(2);
    run.accumulate_grad_batches = c.accumulate;
    run.resume = true;
    run.checkpoints = {.directory = directory / "checkpoints",
                       .link = checkpoint_after(c.step, directory.path())};
    CountingListener listener;
    run.listeners = {&listener};
    const testing_support::CapturedLog log;  // names settings that the file lacks
    if (c.accepted) {
      train(run);
      EXPECT_EQ(listener.rates.size(), static_cast<std::size_t>(2 * 6 / c.accumulate - c.step));
    } else {
      EXPECT_THAT(testing_support::message_of<CheckpointError>([&] { train(run); }),
                  HasSubstr(str("step ", c.step, " is beyond this run's epoch of ",
                                6 / c.accumulate, " steps")));
      EXPECT_EQ(listener.events, "") << "nothing was trained";
    }
  }
}

TEST(CheckpointResume, RefusesANumberOfUpdatesOfTheAverageThatIsNone) {
  for (const char* updates : {"-1", "3x", "1.5"}) {
    const TemporaryDirectory directory;
    TrainerOptions run = options(2);
    run.ema_decay = 0.5;
    run.resume = true;
    run.checkpoints = {.directory = directory / "checkpoints",
                       .link = directory / "checkpoint.safetensors"};
    const MnistNet net;
    save_checkpoint(
        run.checkpoints.link, *net, Optimizer(*net, run.optimizer).state(),
        {.recipe = "digits", .epoch = 1, .step = 1, .settings = {{"ema_updates", updates}}});
    const testing_support::CapturedLog log;  // names settings that the file lacks
    EXPECT_THAT(
        testing_support::message_of<CheckpointError>([&] { train(run); }),
        HasSubstr(str("the checkpoint's ema_updates is '", updates, "', expected a whole number")));
  }
}

}  // namespace
}  // namespace lockstep::train
