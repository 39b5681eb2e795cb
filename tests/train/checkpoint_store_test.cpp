// Which checkpoints are kept, when the others go, and what a run finds when it goes on.
#include <lockstep/train/checkpoint_store.h>

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <tests/support/captured_log.h>
#include <tests/support/temporary_directory.h>
#include <tests/train/stored_checkpoints.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CheckpointStoreTest : public ::testing::Test {
 protected:
  CheckpointStore store(CheckpointOptions options = {}) const {
    options.directory = directory;
    CheckpointStore made(options);
    made.prepare();
    return made;
  }

  testing_support::TemporaryDirectory scratch;
  const fs::path directory = scratch / "checkpoints";
};

std::string message_of_save(CheckpointStore& store, std::int64_t step) {
  try {
    save_step(store, step);
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST_F(CheckpointStoreTest, WritesWhatARunGoesOnFrom) {
  CheckpointStore written = store();
  const StepContent content(60);
  written.save(content.files(), {.epoch = 2, .step = 60, .metrics = {{"loss", 0.25}}});
  const FoundCheckpoint found = find_checkpoint(directory);
  EXPECT_EQ(found.folder, directory / "step-00000060");
  EXPECT_TRUE(holds_step(found.folder, 60));
  EXPECT_EQ(found.manifest.epoch, 2);
  EXPECT_EQ(found.manifest.step, 60);
  EXPECT_EQ(found.manifest.sequence, 1);
  EXPECT_EQ(found.manifest.metrics.at("loss"), 0.25);
  EXPECT_EQ(found.manifest.files.at(kModelFile).bytes, 3000U);
  EXPECT_THAT(found.damaged, IsEmpty());
  EXPECT_EQ(fs::read_symlink(directory / "latest"), "step-00000060");
  EXPECT_FALSE(fs::exists(fs::symlink_status(directory / "best")));
}

TEST_F(CheckpointStoreTest, FindsNothingWhereThereIsNothing) {
  EXPECT_TRUE(find_checkpoint(directory).folder.empty());
  EXPECT_FALSE(store().resume());
}

struct Kept {
  const char* name;
  CheckpointOptions options;
  std::vector<std::string> expected;  // after the steps 1 to 6
  const char* best;
};

// The losses of the steps 1 to 6, and what stays of them.
class CheckpointsKept : public CheckpointStoreTest, public ::testing::WithParamInterface<Kept> {};

INSTANTIATE_TEST_SUITE_P(
    Rules, CheckpointsKept,
    ::testing::Values(Kept{"Newest", {.keep_last = 1}, {"step-00000006"}, nullptr},
                      Kept{"TwoNewest", {}, {"step-00000005", "step-00000006"}, nullptr},
                      Kept{"SmallestLoss",
                           {.keep_last = 1, .save_top_k = 1},
                           {"step-00000003", "step-00000006"},
                           "step-00000003"},
                      Kept{"TwoSmallestLosses",
                           {.keep_last = 1, .save_top_k = 2},
                           {"step-00000002", "step-00000003", "step-00000006"},
                           "step-00000003"},
                      Kept{"LargestLoss",
                           {.keep_last = 1, .save_top_k = 1, .mode = MetricGoal::kMax},
                           {"step-00000001", "step-00000006"},
                           "step-00000001"},
                      Kept{"AnotherMetric",
                           {.keep_last = 1, .save_top_k = 1, .monitor = "accuracy"},
                           {"step-00000006"},
                           nullptr}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_P(CheckpointsKept, AreTheNewestAndTheBest) {
  CheckpointStore written = store(GetParam().options);
  const double losses[] = {0.9, 0.3, 0.2, 0.3, std::nan(""), 0.4};
  for (std::int64_t step = 1; step <= 6; ++step) {
    save_step(written, step, {{"loss", losses[step - 1]}});
  }
  EXPECT_EQ(names_in(directory), GetParam().expected);
  EXPECT_EQ(fs::read_symlink(directory / "latest"), "step-00000006");
  const fs::path best = directory / "best";
  if (GetParam().best == nullptr) {
    EXPECT_FALSE(fs::exists(fs::symlink_status(best)));
  } else {
    EXPECT_EQ(fs::read_symlink(best), GetParam().best);
  }
}

// Values that were written before count after a resume as well.
TEST_F(CheckpointStoreTest, RemembersTheBestAfterAResume) {
  const CheckpointOptions options = {.keep_last = 1, .save_top_k = 1};
  CheckpointStore first = store(options);
  save_step(first, 1, {{"loss", 0.1}});
  save_step(first, 2, {{"loss", 0.5}});
  CheckpointStore second = store(options);
  EXPECT_EQ(second.resume(), directory / "step-00000002");
  save_step(second, 3, {{"loss", 0.4}});
  EXPECT_THAT(names_in(directory), ElementsAre("step-00000001", "step-00000003"));
}

TEST_F(CheckpointStoreTest, ReplacesTheRunBeforeWhenANewOneBegins) {
  CheckpointStore first = store();
  for (const std::int64_t step : {100, 200}) save_step(first, step);
  CheckpointStore second = store();
  EXPECT_THAT(names_in(directory), ElementsAre("step-00000100", "step-00000200"));
  save_step(second, 100, {}, 5000);
  EXPECT_THAT(names_in(directory), ElementsAre("step-00000100"));
  const FoundCheckpoint found = find_checkpoint(directory);
  EXPECT_TRUE(holds_step(found.folder, 100, 5000));
  EXPECT_EQ(found.manifest.sequence, 3);
  EXPECT_EQ(found.manifest.first_sequence, 3);
}

// As where the steps of an epoch become fewer with a larger batch.
TEST_F(CheckpointStoreTest, TakesTheOneWrittenLastForTheNewest) {
  CheckpointStore first = store();
  save_step(first, 200);
  CheckpointStore second = store();
  EXPECT_TRUE(second.resume());
  save_step(second, 150);
  fs::remove(directory / "latest");
  EXPECT_EQ(find_checkpoint(directory).folder, directory / "step-00000150");
}

TEST_F(CheckpointStoreTest, GoesBackToWhereItsUserTurnsLatest) {
  CheckpointStore first = store();
  for (const std::int64_t step : {1, 2}) save_step(first, step);
  replace_link(directory / "latest", "step-00000001");
  CheckpointStore second = store();
  EXPECT_EQ(second.resume(), directory / "step-00000001");
  save_step(second, 3);
  EXPECT_THAT(names_in(directory), ElementsAre("step-00000001", "step-00000003"));
  EXPECT_EQ(fs::read_symlink(directory / "latest"), "step-00000003");
  replace_link(directory / "latest", "step-00000009");
  EXPECT_EQ(find_checkpoint(directory).folder, directory / "step-00000003") << "leads nowhere";
}

TEST_F(CheckpointStoreTest, RemovesWhatAKilledRunHasLeft) {
  CheckpointStore first = store();
  save_step(first, 1);
  const fs::path unfinished = directory / ".tmp-step-00000002";
  const fs::path removed = directory / ".tmp-removed-step-00000000";
  for (const fs::path& left : {unfinished, removed}) {
    fs::create_directory(left);
    std::ofstream(left / kModelFile) << "half a checkpoint";
  }
  const testing_support::CapturedLog log;
  EXPECT_EQ(find_checkpoint(directory).folder, directory / "step-00000001");
  EXPECT_THAT(log.lines(), IsEmpty());
  store();
  EXPECT_FALSE(fs::exists(unfinished));
  EXPECT_FALSE(fs::exists(removed));
  EXPECT_THAT(names_in(directory), ElementsAre("step-00000001"));
}

TEST_F(CheckpointStoreTest, RemovesADamagedOneOnceThereIsANewOne) {
  CheckpointStore first = store();
  for (const std::int64_t step : {1, 2}) save_step(first, step);
  fs::resize_file(directory / "step-00000002" / kModelFile, 10);
  const testing_support::CapturedLog log;
  CheckpointStore second = store();
  EXPECT_EQ(second.resume(), directory / "step-00000001");
  EXPECT_THAT(names_in(directory), ElementsAre("step-00000001", "step-00000002"));
  save_step(second, 3);
  EXPECT_THAT(names_in(directory), ElementsAre("step-00000001", "step-00000003"));
}

// The run repeats the steps behind the checkpoint that it has fallen back to.
TEST_F(CheckpointStoreTest, ReplacesADamagedOneOfTheSameStep) {
  CheckpointStore first = store();
  for (const std::int64_t step : {1, 2}) save_step(first, step);
  fs::resize_file(directory / "step-00000002" / kModelFile, 10);
  const testing_support::CapturedLog log;
  CheckpointStore second = store();
  EXPECT_EQ(second.resume(), directory / "step-00000001");
  save_step(second, 2);
  EXPECT_THAT(names_in(directory), ElementsAre("step-00000001", "step-00000002"));
  EXPECT_EQ(find_checkpoint(directory).folder, directory / "step-00000002");
}

TEST_F(CheckpointStoreTest, KeepsALinkToTheWeights) {
  const CheckpointOptions options = {.link = scratch / "checkpoint.safetensors"};
  CheckpointStore first = store(options);
  save_step(first, 1);
  EXPECT_EQ(fs::read_symlink(options.link), "checkpoints/latest/model.safetensors");
  EXPECT_EQ(testing_support::read_text(options.link), StepContent(1).model());
  save_step(first, 2);
  EXPECT_EQ(testing_support::read_text(options.link), StepContent(2).model());
}

// Folders in place of the links stand for a file system that has no links.
TEST_F(CheckpointStoreTest, GoesOnWithoutLinks) {
  fs::create_directories(directory / "latest/in the way");
  CheckpointStore first = store({.save_top_k = 1});
  const testing_support::CapturedLog log;
  for (const std::int64_t step : {1, 2}) save_step(first, step, {{"loss", 0.5}});
  EXPECT_THAT(log.lines(),
              ElementsAre(HasSubstr("; the run goes on without links to its checkpoints")));
  EXPECT_EQ(find_checkpoint(directory).folder, directory / "step-00000002");
}

TEST_F(CheckpointStoreTest, GoesOnFromTheFileOfAnEarlierVersion) {
  const CheckpointOptions options = {.link = scratch / "checkpoint.safetensors"};
  scratch.write("checkpoint.safetensors", "an old checkpoint");
  CheckpointStore run = store(options);
  EXPECT_EQ(run.resume(), options.link);
  EXPECT_EQ(testing_support::read_text(options.link), "an old checkpoint")
      << "until there is another";
  save_step(run, 1);
  EXPECT_EQ(testing_support::read_text(options.link), StepContent(1).model());
  EXPECT_EQ(store(options).resume(), directory / "step-00000001");
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

// A process that changes a byte of what is written, for as long as this object lives: what comes to
// the disk is not what the checksum was made of.
class ChangingBytes {
 public:
  explicit ChangingBytes(std::size_t bytes) : bytes_(bytes) {
    memory_ = static_cast<std::byte*>(
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    child_ = fork();
    if (child_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::atomic_ref<std::byte> changing(memory_[bytes_ / 2]);
    for (unsigned char value = 0;; ++value) changing.store(std::byte{value});
  }
  ~ChangingBytes() {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    munmap(memory_, bytes_);
  }
  std::span<const std::byte> bytes() const { return {memory_, bytes_}; }

 private:
  std::size_t bytes_;
  std::byte* memory_ = nullptr;
  pid_t child_ = -1;
};

TEST_F(CheckpointStoreTest, RemovesNothingBeforeTheNewOneIsVerified) {
  CheckpointStore run = store({.keep_last = 1});
  save_step(run, 1);
  const ChangingBytes changing(std::size_t{4} << 20);
  const std::string training = "training";
  std::string message;
  std::int64_t step = 1;
  // By chance the byte may be the same twice; not each time.
  for (int attempt = 0; attempt < 200 && message.empty(); ++attempt) {
    try {
      run.save({{kModelFile, {changing.bytes()}},
                {kTrainingFile, {testing_support::as_bytes(training)}}},
               {.epoch = 1, .step = step + 1});
      ++step;
    } catch (const CheckpointError& error) {
      message = error.what();
    }
  }
  EXPECT_THAT(message, HasSubstr("model.safetensors is damaged: its checksum is "));
  EXPECT_THAT(names_in(directory), ElementsAre(checkpoint_name(step)));
  EXPECT_EQ(find_checkpoint(directory).folder, directory / checkpoint_name(step));
}

}  // namespace
}  // namespace lockstep
