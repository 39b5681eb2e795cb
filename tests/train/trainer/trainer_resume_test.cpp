#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/formats/safetensors.h>
#include <lockstep/train/checkpoints/checkpoint_folder.h>
#include <tests/support/captured_log.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>
#include <tests/train/trainer/trainer_runs.h>

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

TEST(TrainerResume, AfterAFailureGivesTheSameBitsAsNoFailure) {
  const lockstep::testing_support::TemporaryDirectory directory;
  TrainerOptions interrupted = options(3);
  interrupted.checkpoints.directory = directory.path() / "checkpoints";
  CountingListener listener;
  listener.steps_until_failure = 8;  // fails in the second epoch
  interrupted.listeners = {&listener};
  EXPECT_THROW(train(interrupted), Error);

  TrainerOptions resumed = options(3);
  resumed.checkpoints.directory = interrupted.checkpoints.directory;
  resumed.resume = true;
  const Outcome outcome = train(resumed);
  EXPECT_EQ(outcome.report.info.first_epoch, 2);
  EXPECT_EQ(outcome.report.info.first_step, 0) << "the checkpoint is from the end of an epoch";
  EXPECT_EQ(outcome.report.epochs.size(), 2U);
  const Outcome whole = train(options(3));
  expect_equal_bits(outcome.state, whole.state);
  EXPECT_EQ(outcome.report.test->loss, whole.report.test->loss);
}

constexpr std::int64_t kInTheSecondEpoch = 8;  // step

TEST(TrainerResume, InTheMiddleOfAnEpochGivesTheSameBits) {
  expect_equal_bits_after_resume(options(2), kInTheSecondEpoch);
}

TEST(TrainerResume, BetweenStepsOfSeveralBatchesGivesTheSameBits) {
  const lockstep::testing_support::TemporaryDirectory directory;
  TrainerOptions run = options(2);
  run.accumulate_grad_batches = 2;  // three steps per epoch
  const Outcome whole = train(run);
  run.checkpoints.directory = directory.path() / "checkpoints";
  run.max_steps = 4;
  train(run);
  run.max_steps.reset();
  run.resume = true;
  const Outcome resumed = train(run);
  EXPECT_EQ(resumed.report.info.first_epoch, 2);
  EXPECT_EQ(resumed.report.info.first_step, 1) << "three of the four steps were in the first epoch";
  ASSERT_EQ(resumed.report.epochs.size(), 1U);
  EXPECT_EQ(resumed.report.epochs[0].epoch, 2);
  EXPECT_EQ(resumed.report.epochs[0].steps, 2);
  expect_equal_bits(resumed.state, whole.state);
}

TEST(TrainerResume, WithAnotherBatchSizeTakesEachImageOfTheEpochOnce) {
  const lockstep::testing_support::TemporaryDirectory directory;
  TrainerOptions first = options(2);
  first.checkpoints.directory = directory.path() / "checkpoints";
  first.max_steps = 8;  // stops after two steps of the second epoch: 40 images
  train(first);
  for (const std::int64_t batch : {10, 40, 15}) {
    const fs::path copy = directory.path() / "copy";
    fs::remove_all(copy);
    fs::copy(first.checkpoints.directory, copy,
             fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    CountingListener listener;
    TrainerOptions second = options(2);
    second.checkpoints.directory = copy;
    second.resume = true;
    second.listeners = {&listener};
    train(second, group_of_one(), true, "", batch);
    EXPECT_EQ(listener.last.images, kImages - 40) << batch;
    EXPECT_EQ(listener.last.step, (kImages + batch - 1) / batch)
        << "steps are those of the new size";
    EXPECT_EQ(std::count(listener.events.begin(), listener.events.end(), 's'),
              (70 + batch - 1) / batch);
  }
}

TEST(TrainerResume, GoesOnExactlyWithEveryOptimizerAndPrecision) {
  TrainerOptions adam = options(2);
  adam.optimizer = AdamOptions{.amsgrad = true};
  adam.gradient_clip_norm = 0.5;
  TrainerOptions half = options(2);
  half.optimizer = AdamWOptions{};
  half.precision = Precision::kFp16;
  // The scale falls in the first steps. If the resumed run restarted it, it would fall again.
  half.grad_scaler = {.init_scale = 1e12, .backoff_factor = 1e-3};
  for (const TrainerOptions& run : {adam, half})
    expect_equal_bits_after_resume(run, kInTheSecondEpoch);
}

TEST(TrainerResume, NamesEveryValueThatDiffers) {
  const lockstep::testing_support::TemporaryDirectory directory;
  TrainerOptions first = options(3);
  first.max_steps = 2;
  first.checkpoints.directory = directory.path() / "checkpoints";
  train(first);
  const testing_support::CapturedLog log;
  TrainerOptions second = first;
  second.resume = true;
  second.max_steps = 4;
  train(second);
  EXPECT_THAT(log.lines(), ::testing::IsEmpty()) << "nothing that matters differs";
  second.max_steps = 6;
  second.max_epochs = 4;
  second.seed = 6;
  second.optimizer = SgdOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.001};
  second.gradient_clip_norm = 1e6;
  train(second);
  const std::vector<std::string> warnings = log.lines();
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0],
              ::testing::EndsWith("trained with gradient_clip_norm none (now 1e+06), lr 0.05 (now "
                                  "0.1), schedule cosine to 0 over 3 epochs "
                                  "(now cosine to 0 over 4 epochs), seed 5 (now 6), "
                                  "weight_decay 0 (now 0.001)"));
}

TEST(TrainerResume, RefusesAnotherSplitOfTheSamples) {
  const lockstep::testing_support::TemporaryDirectory directory;
  TrainerOptions run = options(3);
  run.max_steps = 2;
  run.checkpoints.directory = directory.path() / "checkpoints";
  run.info.split = "5";
  train(run);
  run.resume = true;
  run.max_steps = 4;
  for (const char* other : {"17", ""}) {
    run.info.split = other;
    EXPECT_THAT(
        testing_support::message_of<CheckpointError>([&] { train(run); }),
        ::testing::ContainsRegex("was trained with another split of the samples.*; split the "
                                 "samples as before \\(RunInfo::split\\), or begin"));
  }
  const testing_support::CapturedLog log;
  run.info.split = "5";
  train(run);
  EXPECT_THAT(log.lines(), ::testing::IsEmpty());
}

// A run is complete at the end of its last epoch, or where max_steps ended it.
TEST(TrainerResume, OnlyEvaluatesARunThatIsComplete) {
  for (const std::int64_t steps : {12, 8}) {
    const lockstep::testing_support::TemporaryDirectory directory;
    TrainerOptions done = options(2);
    done.max_steps = steps;
    done.checkpoints.directory = directory.path() / "checkpoints";
    const Outcome first = train(done);
    EXPECT_FALSE(first.report.already_complete || first.report.info.already_complete);
    const fs::path manifest = done.checkpoints.directory / "latest/manifest.json";
    const std::string text = lockstep::testing_support::read_text(manifest);
    EXPECT_NE(text, "");
    CountingListener listener;
    done.listeners = {&listener};
    done.resume = true;
    const Outcome again = train(done);
    EXPECT_TRUE(again.report.already_complete);
    EXPECT_TRUE(again.report.info.already_complete) << "listeners know from the beginning";
    EXPECT_EQ(listener.events, "bE") << "nothing is trained";
    expect_equal_bits(again.state, first.state);
    EXPECT_EQ(again.report.test->loss, first.report.test->loss);
    EXPECT_EQ(lockstep::testing_support::read_text(manifest), text);
  }
}

// An epoch has six steps, and the first run ends within the second.
TEST(TrainerResume, ReportsThePartsOfAnEpoch) {
  const lockstep::testing_support::TemporaryDirectory directory;
  TrainerOptions run = options(2);
  run.checkpoints.directory = directory.path() / "checkpoints";
  run.max_steps = 8;
  const RunReport first = train(run).report;
  ASSERT_EQ(first.epochs.size(), 2U);
  EXPECT_EQ(first.epochs[0].steps, 6);
  EXPECT_EQ(first.epochs[1].steps, 2);
  run.max_steps.reset();
  run.resume = true;
  const RunReport second = train(run).report;
  EXPECT_FALSE(second.info.already_complete);
  ASSERT_EQ(second.epochs.size(), 1U);
  EXPECT_EQ(second.epochs[0].steps, 4);
  for (const RunReport& report : {first, second}) {
    for (const EpochReport& epoch : report.epochs) EXPECT_EQ(epoch.steps_per_epoch, 6);
  }
}

// The second epoch ends without an evaluation, because the run was asked to stop.
TEST(TrainerResume, KnowsTheUnitOfTheBestValueOfAnInterruptedRun) {
  struct Stopping : Listener {
    void on_step(const StepReport& report) override {
      if (report.epoch == 2) request.request(15);
    }
    StopRequest request;
  } listener;
  TrainerOptions run = options(2);
  run.checkpoints.monitor = "accuracy";
  run.checkpoints.mode = MetricGoal::kMax;
  run.stop_request = &listener.request;
  run.listeners = {&listener};
  const RunReport report = train(run).report;
  EXPECT_TRUE(report.interrupted);
  EXPECT_FALSE(report.test);
  ASSERT_TRUE(report.best);
  EXPECT_EQ(report.best->name, "accuracy");
  EXPECT_EQ(report.best->value, report.epochs[0].test->accuracy());
  EXPECT_EQ(report.best->unit, MetricUnit::kFraction);
}

TEST(TrainerResume, NeedsACheckpoint) {
  TrainerOptions nowhere = options(1);
  nowhere.resume = true;
  EXPECT_EQ(testing_support::message_of<ConfigError>([&] { train(nowhere); }),
            "Trainer: resume needs a folder of checkpoints; set CheckpointOptions::directory");
}

TEST(TrainerDdp, ResumesOnAllRanksFromRankZerosFile) {
  const lockstep::testing_support::TemporaryDirectory directory;
  std::vector<Outcome> whole(2);
  std::vector<Outcome> resumed(2);
  const auto run = [&](std::vector<Outcome>& outcomes, std::int64_t epochs, bool resume) {
    const auto errors = testing_support::run_group(2, "shm", [&](ProcessGroup group) {
      TrainerOptions o = options(epochs);
      o.schedule = {};
      o.optimizer = AdamOptions{};
      if (&outcomes == &resumed) {
        const std::string name = group.rank() == 0 ? "checkpoints" : "elsewhere";
        o.checkpoints.directory = directory.path() / name;
        o.resume = resume;
      }
      outcomes[group.rank()] = train(o, group, /*dropout=*/false);
    });
    for (const auto& error : errors) ASSERT_EQ(error, "");
  };
  run(whole, 2, false);
  run(resumed, 1, false);
  run(resumed, 2, true);
  expect_equal_bits(resumed[0].state, whole[0].state);
  expect_equal_bits(resumed[1].state, whole[0].state);
}

// The checkpoint has the format of a single process, whichever strategy wrote it.
TEST(TrainerZero, ResumesWithAnotherNumberOfRanksAndAnotherStrategy) {
  struct Second {
    int ranks;
    const char* backend;
    const char* strategy;
  };
  TrainerOptions first = options(2);
  first.schedule = {};
  first.optimizer = AdamWOptions{.lr = 1e-3};
  const StateDict whole = train_ranks(2, "shm", "zero1", first).state;
  const double trained = distance(whole, initial_state());
  for (const Second& second :
       {Second{2, "shm", "zero1"}, Second{4, "shm", "zero1"}, Second{1, "auto", "zero1"},
        Second{2, "gloo", "zero1"}, Second{1, "auto", "single"}, Second{2, "shm", "ddp"}}) {
    const lockstep::testing_support::TemporaryDirectory directory;
    TrainerOptions two = first;
    two.checkpoints.directory = directory.path() / "checkpoints";
    two.max_epochs = 1;
    train_ranks(2, "shm", "zero1", two);
    two.max_epochs = 2;
    two.resume = true;
    const StateDict resumed = train_ranks(second.ranks, second.backend, second.strategy, two).state;
    if (second.ranks == 2) {
      expect_equal_bits(resumed, whole);
    } else {
      EXPECT_LT(distance(resumed, whole), 0.01 * trained) << second.ranks << second.strategy;
    }
  }
}

TEST(TrainerResume, SaysThatThereIsNothingToResume) {
  const lockstep::testing_support::TemporaryDirectory directory;
  TrainerOptions run = options(1);
  run.checkpoints.directory = directory / "checkpoints";
  run.resume = true;
  EXPECT_EQ(
      testing_support::message_of<CheckpointError>([&] { train(run); }),
      "there is no checkpoint in " + run.checkpoints.directory.string() +
          " to resume from; to start a new run, remove TrainerOptions::resume or set it to auto");
}

TEST(TrainerResume, ReplacesARunOnlyIfToldTo) {
  const lockstep::testing_support::TemporaryDirectory directory;
  TrainerOptions run = options(2);
  run.checkpoints.directory = directory / "checkpoints";
  train(run);
  const fs::path newest = run.checkpoints.directory / "step-00000012";
  const std::string manifest = lockstep::testing_support::read_text(newest / "manifest.json");
  CountingListener listener;
  run.max_epochs = 1;
  run.listeners = {&listener};
  const std::string refusal = run.checkpoints.directory.string() +
                              " already holds a checkpoint; set TrainerOptions::resume to continue "
                              "that run, TrainerOptions::overwrite to replace it, or another "
                              "CheckpointOptions::directory";
  EXPECT_EQ(testing_support::message_of<ConfigError>([&] { train(run); }), refusal);
  const auto errors = testing_support::run_group(2, "shm", [&](ProcessGroup group) {
    at::set_num_threads(1);
    train(run, group, /*dropout=*/false, "ddp");
  });
  ASSERT_EQ(errors.size(), 2U);
  for (const std::string& error : errors) EXPECT_THAT(error, ::testing::HasSubstr(refusal));
  EXPECT_EQ(listener.events, "") << "no run has begun";
  EXPECT_EQ(lockstep::testing_support::read_text(newest / "manifest.json"), manifest);
  run.overwrite = true;
  EXPECT_EQ(train(run).report.epochs.size(), 1U);
  EXPECT_FALSE(fs::exists(newest));
  EXPECT_TRUE(fs::exists(run.checkpoints.directory / "step-00000006"));
  run.resume = true;
  EXPECT_EQ(testing_support::message_of<ConfigError>([&] { train(run); }),
            "Trainer: resume and overwrite cannot be combined; remove one of them");
}

// A trial keeps nothing, and a file of an earlier version is a checkpoint, too.
TEST(TrainerResume, TellsWhatARunWouldReplace) {
  const lockstep::testing_support::TemporaryDirectory directory;
  TrainerOptions run = options(1);
  run.checkpoints = {.directory = directory / "checkpoints",
                     .link = directory / "checkpoint.safetensors"};
  directory.write("checkpoint.safetensors", "a checkpoint");
  EXPECT_THAT(testing_support::message_of<ConfigError>([&] { train(run); }),
              ::testing::HasSubstr(" already holds a checkpoint; "));
  run.fast_dev_run = 1;
  EXPECT_NO_THROW(train(run));
  EXPECT_EQ(lockstep::testing_support::read_text(run.checkpoints.link), "a checkpoint");
}

// On a file system without an atomic exchange, a run that is killed while it replaces its only
// checkpoint leaves it under another name.
TEST(TrainerResume, KnowsACheckpointThatAKilledRunHasSetAside) {
  const lockstep::testing_support::TemporaryDirectory directory;
  TrainerOptions run = options(2);
  run.max_steps = 6;
  run.checkpoints.directory = directory / "checkpoints";
  train(run);
  const fs::path newest = run.checkpoints.directory / "step-00000006";
  const fs::path aside = run.checkpoints.directory / ".tmp-replaced-step-00000006";
  fs::rename(newest, aside);
  run.max_steps = 7;
  EXPECT_THAT(testing_support::message_of<ConfigError>([&] { train(run); }),
              ::testing::HasSubstr(" already holds a checkpoint; "));
  EXPECT_TRUE(fs::exists(aside)) << "another run may be writing here";
  for (const Resume resume : {Resume(Resume::kAuto), Resume(Resume::kYes)}) {
    run.resume = resume;
    EXPECT_EQ(train(run).report.info.resumed_from, newest.string());
    fs::remove_all(run.checkpoints.directory / "step-00000007");
    fs::rename(newest, aside);
  }
}

// One program, with the same options, begins a run and resumes it. Only rank 0 sees its folder.
TEST(TrainerResume, IfThereIsACheckpointOrElseBegins) {
  const StateDict whole = train_ranks(2, "shm", "ddp", options(2)).state;
  const lockstep::testing_support::TemporaryDirectory directory;
  std::vector<Outcome> outcomes(2);
  const auto run = [&](std::optional<std::int64_t> max_steps) {
    const auto errors = testing_support::run_group(2, "shm", [&](ProcessGroup group) {
      at::set_num_threads(1);
      TrainerOptions o = options(2);
      o.max_steps = max_steps;
      o.checkpoints.directory = directory.path() / (group.rank() == 0 ? "here" : "elsewhere");
      o.resume = Resume::kAuto;
      outcomes[group.rank()] = train(o, group, /*dropout=*/false, "ddp");
    });
    EXPECT_EQ(errors, testing_support::no_errors(2));
  };
  run(8);
  EXPECT_EQ(outcomes[0].report.info.resumed_from, "");
  run(std::nullopt);
  EXPECT_EQ(outcomes[0].report.info.resumed_from,
            (directory.path() / "here" / "step-00000008").string());
  EXPECT_EQ(outcomes[1].report.info.first_step, 2);
  for (const Outcome& outcome : outcomes) expect_equal_bits(outcome.state, whole);
  run(std::nullopt);
  EXPECT_TRUE(outcomes[1].report.already_complete);
}

TEST(TrainerResume, KnowsWhatTheRunIsMadeFrom) {
  const lockstep::testing_support::TemporaryDirectory directory;
  TrainerOptions run = options(2);
  run.max_steps = 3;
  run.checkpoints.directory = directory / "checkpoints";
  run.early_stopping =
      EarlyStoppingOptions{.monitor = "accuracy", .mode = MetricGoal::kMax, .patience = 5};
  run.info.weights = "mnist.pth";
  run.info.provenance = {{"augmentation", "none"}};
  const RunInfo first = train(run).report.info;
  EXPECT_EQ(first.weights, "mnist.pth");
  EXPECT_EQ(
      first.provenance,
      (std::map<std::string, std::string>{
          {"augmentation", "none"}, {"early_stopping", "accuracy:5:max"}, {"model", "MnistNet"}}));
  run.resume = true;
  run.max_steps = 6;
  run.info.weights.clear();
  EXPECT_EQ(train(run).report.info.weights, "mnist.pth");
  run.info.weights = "other.pth";  // is not used
  run.max_steps = 9;
  EXPECT_EQ(train(run).report.info.weights, "mnist.pth") << "also of a run that was resumed twice";
  TrainerOptions named = options(1);
  named.info.recipe_options = {{"model", "small"}};
  EXPECT_TRUE(train(named).report.info.provenance.empty()) << "the recipe names its model";
}

// Notes are for programs that use the model. They are no settings that a resumed run must repeat.
TEST(TrainerResume, KeepsNotesAboutTheModelInEachFile) {
  const lockstep::testing_support::TemporaryDirectory directory;
  TrainerOptions run = options(2);
  run.max_steps = 1;
  run.checkpoints.directory = directory / "checkpoints";
  run.info.notes = {{"classes", "[\"caf\xE9\"]"}, {"input", "[1,28,28]"}};
  train(run);
  for (const char* name : {kModelFile, kTrainingFile}) {
    const fs::path path = run.checkpoints.directory / "latest" / name;
    const MappedFile file(path);
    const SafetensorsMetadata metadata = parse_safetensors(file.bytes(), path.string()).metadata;
    EXPECT_EQ(metadata.at("note.classes"), "[\"caf\\xe9\"]") << name;
    EXPECT_EQ(metadata.at("note.input"), "[1,28,28]") << name;
  }
  run.resume = true;
  run.max_steps = 2;
  run.info.notes = {{"classes", "[\"dog\"]"}};
  const testing_support::CapturedLog log;
  train(run);
  EXPECT_THAT(log.lines(), ::testing::IsEmpty());
}

// The resumed run only makes the weights worse.
TEST(TrainerResume, RemembersTheBestEvaluation) {
  const lockstep::testing_support::TemporaryDirectory directory;
  TrainerOptions run = options(1);
  run.schedule = {};
  run.checkpoints.directory = directory / "checkpoints";
  const RunReport first = train(run).report;
  ASSERT_TRUE(first.best && first.test);
  EXPECT_EQ(first.best->name, "loss");
  EXPECT_EQ(first.best->value, first.test->loss);
  EXPECT_EQ(first.best->epoch, 1);
  EXPECT_EQ(first.best->weights,
            (run.checkpoints.directory / "step-00000006" / "model.safetensors").string());
  run.resume = true;
  run.max_epochs = 2;
  run.optimizer = SgdOptions{.lr = 3, .momentum = 0.9};
  run.gradient_clip_norm = 1;              // keeps the weights finite
  const testing_support::CapturedLog log;  // says what differs
  std::vector<RunReport> reports(2);
  const auto errors = testing_support::run_group(2, "shm", [&](ProcessGroup group) {
    at::set_num_threads(1);
    reports[group.rank()] = train(run, group, /*dropout=*/false, "ddp").report;
  });
  EXPECT_EQ(errors, testing_support::no_errors(2));
  for (const RunReport& report : reports) {
    ASSERT_TRUE(report.best);
    EXPECT_EQ(report.best->value, first.best->value);
    EXPECT_EQ(report.best->epoch, 1);
  }
  EXPECT_EQ(reports[0].best->weights, first.best->weights);
  EXPECT_EQ(reports[1].best->weights, "") << "only rank 0 knows the files";
  // The best loss says nothing about the best accuracy. The checkpoint of the first epoch is gone.
  EXPECT_EQ(train(run).report.best->weights, first.best->weights) << "of the complete run";
  run.max_epochs = 3;
  EXPECT_EQ(train(run).report.best->weights, "");
  run.checkpoints.monitor = "accuracy";
  run.checkpoints.mode = MetricGoal::kMax;
  run.max_epochs = 4;
  const RunReport last = train(run).report;
  ASSERT_TRUE(last.best);
  EXPECT_EQ(last.best->name, "accuracy");
  EXPECT_EQ(last.best->epoch, 4);
}

// Early stopping and the schedule plateau say what is best, too; without an evaluation nothing is.
TEST(TrainerResume, JudgesByWhatTheRunWatches) {
  const auto judged_by = [](const TrainerOptions& run) {
    const RunReport report = train(run).report;
    return report.best ? report.best->name : "nothing";
  };
  TrainerOptions run = options(1);
  run.schedule = {.kind = ScheduleKind::kPlateau, .plateau = {.monitor = "train_loss"}};
  EXPECT_EQ(judged_by(run), "train_loss");
  run.early_stopping = EarlyStoppingOptions{.monitor = "accuracy", .mode = MetricGoal::kMax};
  EXPECT_EQ(judged_by(run), "accuracy");
  TrainerOptions blind = options(1);
  blind.limit_val_batches = 0;
  EXPECT_EQ(judged_by(blind), "nothing");
}

// A checkpoint of an earlier version does not tell the values of options that are newer.
TEST(TrainerResume, NamesAnOptionThatTheCheckpointDoesNotKnow) {
  const lockstep::testing_support::TemporaryDirectory directory;
  TrainerOptions run = options(2);
  run.checkpoints.directory = directory / "checkpoints";
  run.max_steps = 1;
  run.info.recipe_options = {{"width", "2"}};
  train(run);
  run.resume = true;
  run.max_steps = 2;
  run.info.recipe_options = {{"depth", "7"}, {"width", "2"}};
  const testing_support::CapturedLog log;
  train(run);
  ASSERT_EQ(log.lines().size(), 1U);
  EXPECT_THAT(log.lines()[0], ::testing::EndsWith("trained with recipe.depth unknown (now 7)"));
}

// With the weights of another network, only the options that differ say what to give.
TEST(TrainerResume, NamesTheRecipeOptionsWithWhichAnotherNetworkWasTrained) {
  const lockstep::testing_support::TemporaryDirectory directory;
  TrainerOptions run = options(2);
  run.checkpoints.directory = directory / "checkpoints";
  run.max_steps = 1;
  run.info.recipe_options = {{"inputs", "x=images"}, {"program", "old.pt2"}};
  train(run);
  run.resume = true;
  run.max_steps = 2;
  const auto train_another = [&] {
    const torch::nn::Sequential net(torch::nn::Flatten(), torch::nn::Linear(28 * 28, 10));
    ClassificationTask task(net, ClassificationLoss::kCrossEntropy);
    const ProcessGroup group = group_of_one();
    Loader loader = train_loader(group);
    Trainer(run, make_strategy("single", group)).fit(task, loader, [&] {
      return test_loader(group);
    });
  };
  run.info.recipe_options = {{"inputs", "x=images"}, {"program", "new.pt2"}};
  EXPECT_THAT(testing_support::message_of<CheckpointError>(train_another),
              ::testing::HasSubstr("was trained with program old.pt2 (now new.pt2); give the same "
                                   "RunInfo::recipe_options[program] as before ("));
  run.info.recipe_options = {{"inputs", "x=images"}, {"model", "small"}};
  EXPECT_THAT(testing_support::message_of<CheckpointError>(train_another),
              ::testing::HasSubstr(
                  "was trained with model none (now small), program old.pt2 (now none); give "
                  "the same RunInfo::recipe_options[model], "
                  "RunInfo::recipe_options[program] as before ("));
}

}  // namespace
}  // namespace lockstep::train
