// The checkpoints of a run: when they are written, which are kept, and how damaged ones are
// handled.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/train/checkpoints/checkpoint.h>
#include <lockstep/train/checkpoints/checkpoint_folder.h>
#include <lockstep/train/checkpoints/state_dict_file.h>
#include <tests/support/captured_log.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>
#include <tests/train/trainer/trainer_runs.h>

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing_support::TemporaryDirectory;

std::vector<std::string> checkpoint_names(const fs::path& directory) {
  std::vector<std::string> names;
  for (const auto& folder : checkpoint_folders(directory)) names.push_back(folder.filename());
  return names;
}

TrainerOptions options_with(std::int64_t epochs, const fs::path& directory,
                            bool background = false) {
  TrainerOptions run = options(epochs);
  run.checkpoints = {.directory = directory, .background = background};
  return run;
}

TEST(TrainerCheckpoints, AreWrittenEveryNStepsAndAtTheEndOfEachEpoch) {
  const TemporaryDirectory directory;
  for (const bool background : {false, true}) {
    const fs::path folder = directory / (background ? "background" : "foreground");
    TrainerOptions run = options_with(2, folder, background);
    run.checkpoints.every_n_train_steps = 4;
    run.checkpoints.keep_last = 100;
    train(run);
    // An epoch has six steps.
    EXPECT_THAT(checkpoint_names(folder),
                ElementsAre("step-00000004", "step-00000006", "step-00000008", "step-00000012"));
    EXPECT_EQ(fs::read_symlink(folder / "latest"), "step-00000012");
    EXPECT_EQ(read_manifest(folder / "step-00000008").epoch, 2);
    EXPECT_EQ(read_manifest(folder / "step-00000006").metrics.count("accuracy"), 1U);
    EXPECT_EQ(read_manifest(folder / "step-00000006").metrics.count("train_loss"), 1U);
    EXPECT_TRUE(read_manifest(folder / "step-00000008").metrics.empty());
  }
}

TEST(TrainerCheckpoints, AreTheSameInTheBackground) {
  const TemporaryDirectory directory;
  for (const bool background : {false, true}) {
    TrainerOptions run = options_with(2, directory / (background ? "b" : "f"), background);
    run.optimizer = AdamWOptions{};
    run.ema_decay = 0.9;
    run.checkpoints.every_n_train_steps = 1;
    run.checkpoints.keep_last = 100;
    train(run);
  }
  const auto names = checkpoint_names(directory / "f");
  EXPECT_EQ(names.size(), 12U);
  EXPECT_EQ(checkpoint_names(directory / "b"), names);
  for (const std::string& name : names) {
    for (const char* file : {kModelFile, kTrainingFile, kManifestFile}) {
      // Compares the manifests as well, which contain the checksums of the other files.
      EXPECT_EQ(testing_support::read_text(directory / "f" / name / file),
                testing_support::read_text(directory / "b" / name / file))
          << name << '/' << file;
    }
  }
}

// For every strategy, and wherever the run was interrupted.
TEST(TrainerCheckpoints, WithinAnEpochAreGoneOnFromExactly) {
  struct Way {
    const char* strategy;
    int ranks;
    bool background;
  };
  for (const Way& way : {Way{"single", 1, true}, Way{"single", 1, false}, Way{"ddp", 2, true},
                         Way{"zero1", 2, true}, Way{"zero1", 2, false}}) {
    SCOPED_TRACE(testing::Message() << way.strategy << way.background);
    const TemporaryDirectory directory;
    TrainerOptions run = options(2);
    run.optimizer = AdamWOptions{.lr = 1e-3};
    const StateDict whole = train_ranks(way.ranks, "shm", way.strategy, run).state;
    run.checkpoints = {.directory = directory / "checkpoints",
                       .every_n_train_steps = 1,
                       .keep_last = 100,
                       .background = way.background};
    train_ranks(way.ranks, "shm", way.strategy, run);
    EXPECT_EQ(checkpoint_names(run.checkpoints.directory).size(), 12U);
    // Simulates a kill after the ninth step.
    for (const std::int64_t step : {12, 11, 10}) {
      fs::remove_all(run.checkpoints.directory / checkpoint_name(step));
    }
    run.resume = true;
    CountingListener listener;
    run.listeners = {&listener};
    expect_equal_bits(train_ranks(way.ranks, "shm", way.strategy, run).state, whole);
    EXPECT_EQ(listener.rates.size(), 3U) << "trains the steps 10, 11 and 12";
    EXPECT_EQ(checkpoint_names(run.checkpoints.directory).size(), 12U);
  }
}

TEST(TrainerCheckpoints, KeepTheBestOfEveryEvaluation) {
  const TemporaryDirectory directory;
  TrainerOptions run = options_with(3, directory / "checkpoints");
  run.val_check_interval = 2;
  run.checkpoints.keep_last = 1;
  run.checkpoints.save_top_k = 2;
  run.checkpoints.monitor = "accuracy";
  run.checkpoints.mode = MetricGoal::kMax;
  CountingListener listener;
  run.listeners = {&listener};
  const Outcome outcome = train(run);
  // The evaluation results by step. The rule for keeping checkpoints applies to all of them.
  std::map<std::int64_t, double> accuracies;
  for (const EvaluationReport& report : listener.evaluations) {
    accuracies[(report.epoch - 1) * 6 + report.step] = report.test.accuracy();
  }
  for (const EpochReport& report : outcome.report.epochs) {
    accuracies[report.epoch * 6] = report.test->accuracy();
  }
  ASSERT_EQ(accuracies.size(), 9U);
  std::vector<std::pair<double, std::int64_t>> ordered;
  for (const auto& [step, accuracy] : accuracies) ordered.emplace_back(-accuracy, step);
  std::sort(ordered.begin(), ordered.end());
  const std::set<std::string> expected = {checkpoint_name(ordered[0].second),
                                          checkpoint_name(ordered[1].second), checkpoint_name(18)};
  const auto names = checkpoint_names(run.checkpoints.directory);
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()), expected);
  EXPECT_EQ(fs::read_symlink(run.checkpoints.directory / "best"),
            checkpoint_name(ordered[0].second));
  ASSERT_TRUE(outcome.report.best);
  const BestEvaluation& best = *outcome.report.best;
  EXPECT_EQ(best.name, "accuracy");
  EXPECT_EQ(best.value, -ordered[0].first);
  EXPECT_EQ(best.unit, MetricUnit::kFraction);
  EXPECT_EQ(best.epoch, (ordered[0].second + 5) / 6);
  EXPECT_EQ(best.weights,
            (run.checkpoints.directory / checkpoint_name(ordered[0].second) / kModelFile).string());
}

// An epoch has six steps, so that the first run ends with step 6. Each resumed run has three steps
// per epoch and ends its second epoch with step 6, too.
TEST(TrainerCheckpoints, OfAResumedRunNeverReplaceABetterOne) {
  struct Change {
    const char* name;
    std::function<void(TrainerOptions&)> options;
    std::int64_t global_batch;
    int ranks;
  };
  const auto none = [](TrainerOptions&) {};
  const Change changes[] = {
      {"batch size", none, 40, 1},
      {"ranks and batch size", none, 40, 2},
      {"accumulation", [](TrainerOptions& run) { run.accumulate_grad_batches = 2; }, 20, 1},
      {"limit", [](TrainerOptions& run) { run.limit_train_batches = 3; }, 20, 1}};
  for (const Change& change : changes) {
    SCOPED_TRACE(change.name);
    const TemporaryDirectory directory;
    TrainerOptions run = options_with(1, directory / "checkpoints");
    run.checkpoints.keep_last = 1;
    run.checkpoints.save_top_k = 1;
    train(run);
    const fs::path best = run.checkpoints.directory / "step-00000006";
    const std::string weights = testing_support::read_text(best / kModelFile);
    run.resume = true;
    run.max_epochs = 2;
    run.optimizer = SgdOptions{.lr = 3, .momentum = 0.9};  // makes the weights worse
    run.schedule = {};
    change.options(run);
    const testing_support::CapturedLog log;  // says what differs
    train_ranks(change.ranks, "shm", change.ranks == 1 ? "single" : "ddp", run,
                change.global_batch);
    EXPECT_THAT(checkpoint_names(run.checkpoints.directory),
                ElementsAre("step-00000006", "step-00000006-v2"));
    EXPECT_EQ(testing_support::read_text(best / kModelFile), weights);
    EXPECT_EQ(fs::read_symlink(run.checkpoints.directory / "best"), "step-00000006");
    EXPECT_EQ(fs::read_symlink(run.checkpoints.directory / "latest"), "step-00000006-v2");
    EXPECT_EQ(read_manifest(run.checkpoints.directory / "step-00000006-v2").parent,
              read_manifest(best).sequence);
    EXPECT_TRUE(train(run, group_of_one(), true, "", change.global_batch).report.already_complete);
  }
}

TEST(TrainerCheckpoints, RefuseAnUnknownMetricBeforeTheTraining) {
  const TemporaryDirectory directory;
  TrainerOptions run = options_with(1, directory / "checkpoints");
  run.checkpoints.save_top_k = 1;
  run.checkpoints.monitor = "acuracy";
  CountingListener listener;
  run.listeners = {&listener};
  EXPECT_THAT(testing_support::message_of<ConfigError>([&] { train(run); }),
              HasSubstr("CheckpointOptions::save_top_k: the evaluation has no value 'acuracy'; it "
                        "has loss, accuracy, train_loss; did you mean 'accuracy'?"));
  EXPECT_EQ(listener.events, "");
  EXPECT_FALSE(fs::exists(run.checkpoints.directory));
}

TEST(TrainerCheckpoints, GoOnFromTheOneBeforeADamagedOne) {
  const StateDict whole = train(options(3)).state;
  for (const char* file : {kModelFile, kTrainingFile, kManifestFile}) {
    const TemporaryDirectory directory;
    TrainerOptions run = options_with(3, directory / "checkpoints");
    run.max_steps = 12;
    train(run);
    const fs::path damaged = run.checkpoints.directory / "step-00000012" / file;
    fs::resize_file(damaged, fs::file_size(damaged) / 2);
    run.max_steps.reset();
    run.resume = true;
    const testing_support::CapturedLog log;
    const Outcome resumed = train(run);
    EXPECT_EQ(resumed.report.info.first_epoch, 2) << file;
    expect_equal_bits(resumed.state, whole);
    EXPECT_THAT(log.lines(), ElementsAre(HasSubstr(damaged.string() + " is damaged")));
    EXPECT_THAT(checkpoint_names(run.checkpoints.directory),
                ElementsAre("step-00000012", "step-00000018"));
    EXPECT_NO_THROW(verify_checkpoint(run.checkpoints.directory / "step-00000012"));
  }
}

// Earlier versions wrote a single file.
TEST(TrainerCheckpoints, GoOnFromAFileOfAnEarlierVersion) {
  const TemporaryDirectory directory;
  const StateDict whole = train(options(2)).state;
  TrainerOptions run = options_with(2, directory / "first");
  run.max_steps = 8;
  train(run);
  MnistNet net;
  const Optimizer optimizer(*net, run.optimizer);
  const StateDict training = optimizer.state();
  const CheckpointInfo info = load_checkpoint(run.checkpoints.directory, *net, training, "digits");
  run.checkpoints = {.directory = directory / "checkpoints",
                     .link = directory / "checkpoint.safetensors"};
  save_checkpoint(run.checkpoints.link, *net, training, info);
  run.max_steps.reset();
  run.resume = true;
  CountingListener listener;
  run.listeners = {&listener};
  expect_equal_bits(train(run).state, whole);
  EXPECT_EQ(listener.rates.size(), 4U) << "trains the steps 9 to 12";
  EXPECT_EQ(fs::read_symlink(run.checkpoints.link), "checkpoints/latest/model.safetensors");
  MnistNet weights;
  load_state_dict(*weights, load_state_dict_file(run.checkpoints.link));
  expect_equal_bits(state_dict(*weights), whole);
  EXPECT_THAT(testing_support::message_of<CheckpointError>(
                  [&] { load_checkpoint(run.checkpoints.link, *net, training, "digits"); }),
              HasSubstr("holds the weights alone; give the folder of its checkpoint, "));
}

// During the run, replaces the checkpoint folder with a file.
class BlockingListener : public CountingListener {
 public:
  explicit BlockingListener(fs::path directory) : directory_(std::move(directory)) {}
  void on_epoch_end(const EpochReport& report) override {
    CountingListener::on_epoch_end(report);
    if (report.epoch != 1) return;
    const Clock::time_point begin = Clock::now();
    while (!fs::exists(directory_ / "latest")) {
      if (seconds_since(begin) > 60) throw Error("no checkpoint was completed");
      std::this_thread::yield();
    }
    fs::rename(directory_, directory_.string() + "-moved");
    std::ofstream(directory_) << "in the way";
  }

 private:
  fs::path directory_;
};

TEST(TrainerCheckpoints, SayWhatHasGoneWrongInTheBackground) {
  for (const std::int64_t epochs : {2, 3}) {  // fails at the end, or at the next checkpoint
    const TemporaryDirectory directory;
    TrainerOptions run = options_with(epochs, directory / "checkpoints", /*background=*/true);
    BlockingListener listener(run.checkpoints.directory);
    run.listeners = {&listener};
    EXPECT_THAT(testing_support::message_of<CheckpointError>([&] { train(run); }),
                HasSubstr("cannot write the checkpoint: cannot"));
    run.checkpoints.directory = directory / "checkpoints-moved";
    const FoundCheckpoint found = find_checkpoint(run.checkpoints.directory);
    EXPECT_EQ(found.manifest.step, 6) << "the one before is whole";
  }
}

// A failing disk affects only rank 0. The others are told why the run ends.
TEST(TrainerCheckpoints, SayOnEveryRankWhyTheyCannotBeWritten) {
  const TemporaryDirectory directory;
  TrainerOptions run = options_with(3, directory / "checkpoints");
  BlockingListener listener(run.checkpoints.directory);
  run.listeners = {&listener};
  const auto errors = testing_support::run_group(2, "shm", [&](ProcessGroup group) {
    at::set_num_threads(1);
    train(run, group, /*dropout=*/false, "ddp");
  });
  ASSERT_EQ(errors.size(), 2U);
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("cannot write the checkpoint: cannot"));
  }
}

// As a watchdog does while the host queues the steps of an epoch, of which it hears nothing.
struct EndsTheGroup : Listener {
  void on_step(const StepReport& report) override {
    if (report.epoch == 2 && report.step == 6) group.abort("rank 1 died");
  }
  ProcessGroup group = group_of_one();
};

TEST(TrainerCheckpoints, AreNotWrittenAfterTheGroupHasEnded) {
  const TemporaryDirectory directory;
  TrainerOptions run = options_with(2, directory.path());
  EndsTheGroup listener;
  run.listeners = {&listener};
  EXPECT_THAT(testing_support::message_of<CommError>(
                  [&] { train(run, listener.group, /*dropout=*/false, "ddp"); }),
              HasSubstr("rank 1 died"));
  EXPECT_THAT(checkpoint_names(directory.path()), ElementsAre("step-00000006"));
}

struct DoublePhasesImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return linear->forward(x.flatten(1)); }
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(28 * 28, 10));
  torch::Tensor phases = register_buffer("phases", torch::zeros({2}, torch::kComplexDouble));
};
TORCH_MODULE(DoublePhases);

// Otherwise the first epoch would be lost.
TEST(TrainerCheckpoints, NameATensorThatNoFileCanHoldBeforeTheFirstStep) {
  const TemporaryDirectory directory;
  ClassificationTask task(DoublePhases(), ClassificationLoss::kCrossEntropy);
  ProcessGroup group = group_of_one();
  Loader loader = train_loader(group);
  CountingListener listener;
  TrainerOptions run = options_with(1, directory / "checkpoints");
  run.listeners = {&listener};
  Trainer trainer(run, make_strategy("single", group));
  EXPECT_THAT(testing_support::message_of<CheckpointError>([&] { trainer.fit(task, loader); }),
              HasSubstr("cannot store 'phases' of type ComplexDouble"));
  EXPECT_TRUE(listener.rates.empty()) << "of steps";
}

TEST(TrainerCheckpoints, NeedANumberOfThemToKeep) {
  TrainerOptions run = options_with(1, "checkpoints");
  run.checkpoints.keep_last = 0;
  EXPECT_THAT(testing_support::message_of<ConfigError>([&] { train(run); }),
              HasSubstr("keep_last must be from 1"));
  const std::pair<CheckpointOptions, const char*> cases[] = {
      {{.every_n_train_steps = -1}, "checkpoints: every_n_train_steps must be at least 0"},
      {{.keep_last = 1'000'001}, "checkpoints: keep_last must be from 1"},
      {{.save_top_k = -1}, "checkpoints: save_top_k must be from 0"},
      {{.save_top_k = 1'000'001}, "checkpoints: save_top_k must be from 0"},
      {{.save_top_k = 1, .monitor = ""},
       "checkpoints: save_top_k needs a monitor, the value that tells which are best"},
      {{.every_n_train_steps = 1, .keep_last = 1, .save_top_k = 1}, "nothing was thrown"},
      {{.keep_last = 1'000'000, .save_top_k = 1'000'000}, "nothing was thrown"},
      {{.save_top_k = 0, .monitor = ""}, "nothing was thrown"},
  };
  for (const auto& [options, message] : cases) {
    EXPECT_THAT(testing_support::message_of<ConfigError>([&, &o = options] { validate(o); }),
                ::testing::StartsWith(message));
  }
}

}  // namespace
}  // namespace lockstep::train
