// Trainer options for trial runs, limits and evaluations.
#include <lockstep/train/trainer.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <thread>

#include <ATen/Context.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/anomaly_mode.h>

#include <lockstep/core/error.h>
#include <lockstep/train/checkpoints/checkpoint.h>
#include <lockstep/train/checkpoints/model_ema.h>
#include <lockstep/train/global_modes.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>
#include <tests/train/trainer/trainer_runs.h>

namespace lockstep::train {
namespace {

using testing::HasSubstr;
using testing_support::message_of;
using testing_support::TemporaryDirectory;

// The events of a run, as the letters of CountingListener.
std::string events_of(TrainerOptions run) {
  CountingListener listener;
  run.listeners = {&listener};
  train(run);
  return listener.events;
}

// A task whose calls can be observed and altered.
class SpiedTask : public Task {
 public:
  torch::nn::Module& module() override { return task_.module(); }
  torch::Tensor training_step(const Batch& batch) override {
    const torch::Tensor loss = task_.training_step(batch);
    return in_training ? in_training(batch, loss) : loss;
  }
  void evaluation_step(const Batch& batch, Metrics& metrics) override {
    ++evaluated;
    if (in_evaluation) in_evaluation();
    task_.evaluation_step(batch, metrics);
  }

  std::function<torch::Tensor(const Batch&, const torch::Tensor& loss)> in_training;
  std::function<void()> in_evaluation;
  int evaluated = 0;

 private:
  ClassificationTask task_{MnistNet(), ClassificationLoss::kNegativeLogLikelihood};
};

RunReport fit_spied(const TrainerOptions& run, SpiedTask& task) {
  Loader loader = train_loader(group_of_one());
  return Trainer(run, make_strategy("single", group_of_one())).fit(task, loader, [] {
    return test_loader(group_of_one());
  });
}

TEST(TrainerLimits, EndAnEpochAfterSoManyBatches) {
  TrainerOptions run = options(2);
  run.limit_train_batches = 4;
  EXPECT_EQ(events_of(run), "bssssesssseE");
  const RunReport report = train(run).report;
  EXPECT_EQ(report.info.steps_per_epoch, 4);
  EXPECT_NEAR(report.epochs[1].images_per_second * report.epochs[1].seconds, 80, 1e-6);
  for (const std::int64_t steps : {3, 4, 6}) expect_equal_bits_after_resume(run, steps);
  run.limit_train_batches = 3;
  run.accumulate_grad_batches = 2;
  EXPECT_EQ(events_of(run), "bssesseE") << "a step of two batches, and one of what is left";
  expect_equal_bits_after_resume(run, 3);
  run.limit_train_batches = 100;
  EXPECT_EQ(events_of(run),
            "bssse"
            "ssseE")
      << "more than there are";
}

TEST(TrainerLimits, EvaluateEveryNthEpochAndTheLast) {
  TrainerOptions run = options(3);
  run.check_val_every_n_epoch = 2;
  const RunReport report = train(run).report;
  EXPECT_FALSE(report.epochs[0].test);
  EXPECT_TRUE(report.epochs[1].test);
  EXPECT_TRUE(report.epochs[2].test);
  EXPECT_TRUE(report.test);
}

TEST(TrainerLimits, EvaluateWithinEpochsWithoutAChangeOfTraining) {
  const StateDict plain = train(options(2)).state;
  CountingListener listener;
  TrainerOptions run = options(2);
  run.val_check_interval = 2;
  run.listeners = {&listener};
  expect_equal_bits(train(run).state, plain);
  EXPECT_EQ(listener.events,
            "bssvssvsse"
            "ssvssvsseE");
  ASSERT_EQ(listener.evaluations.size(), 4U);
  EXPECT_EQ(listener.evaluations[3].epoch, 2);
  EXPECT_EQ(listener.evaluations[3].step, 4);
  EXPECT_EQ(listener.evaluations[3].steps_per_epoch, 6);
  EXPECT_EQ(listener.evaluations[3].test.samples, 33);
  run.listeners.clear();
  run.check_val_every_n_epoch = 2;
  EXPECT_EQ(events_of(run),
            "bsssssse"
            "ssvssvsseE");
  TrainerOptions blind = options(1);
  blind.val_check_interval = 2;
  blind.limit_val_batches = 0;
  EXPECT_EQ(events_of(blind), "bsssssseE") << "without a loader nothing is evaluated";
  run.check_val_every_n_epoch = 1;
  run.val_check_interval = 3;
  run.accumulate_grad_batches = 2;
  EXPECT_EQ(events_of(run),
            "bssvse"
            "ssvseE")
      << "with the step that reaches three batches";
  run.limit_train_batches = 2;
  EXPECT_EQ(message_of<ConfigError>([&] { train(run); }),
            "Trainer: val_check_interval is 3 batches, more than the 2 that each rank has in an "
            "epoch; use at most 2, or check_val_every_n_epoch");
  run.fast_dev_run = 1;
  EXPECT_EQ(events_of(run), "bseE") << "a trial has no such evaluations";
}

TEST(TrainerTiming, CountsEvaluationsAsNoTimeOfTraining) {
  SpiedTask task;
  task.in_evaluation = [] { std::this_thread::sleep_for(std::chrono::milliseconds(40)); };
  TrainerOptions run = options(1);
  run.val_check_interval = 1;
  run.limit_val_batches = 1;
  const RunReport report = fit_spied(run, task);
  EXPECT_EQ(task.evaluated, 6);
  EXPECT_LT(report.epochs[0].seconds, report.seconds_total - 6 * 0.040);
}

TEST(TrainerLimits, TellListenersOfEveryNthStepAndTheLast) {
  TrainerOptions run = options(2);
  run.log_every_n_steps = 4;
  EXPECT_EQ(events_of(run), "bssesseE");
  run.max_steps = 7;
  EXPECT_EQ(events_of(run), "bsseseE");
}

TEST(TrainerClipping, ClampsEachElement) {
  TrainerOptions run = options(1);
  run.optimizer = SgdOptions{.lr = 1};
  run.schedule = {};
  run.gradient_clip_value = 0.002;
  run.max_steps = 1;
  run.limit_val_batches = 0;
  const StateDict before = initial_state();
  const auto largest_change = [&](const StateDict& after) {
    double largest = 0;
    for (std::size_t i = 0; i < after.size(); ++i) {
      largest = std::max(largest, (after[i].second - before[i].second).abs().max().item<double>());
    }
    return largest;
  };
  EXPECT_NEAR(largest_change(train(run, group_of_one(), false).state), 0.002, 1e-6);
  TrainerOptions half = run;
  half.precision = Precision::kFp16;
  half.grad_scaler = {.init_scale = 1024};
  EXPECT_NEAR(largest_change(train(half, group_of_one(), false).state), 0.002, 1e-6)
      << "gradients without the scale of the loss";
  run.max_steps = 3;
  const StateDict ddp = train_ranks(2, "shm", "ddp", run).state;
  for (const char* backend : {"shm", "gloo"}) {
    expect_equal_bits(train_ranks(2, backend, "zero1", run).state, ddp);
  }
  EXPECT_LE(largest_change(ddp), 3 * 0.002 + 1e-6);
}

TEST(TrainerMaxTime, EndsAllRanksTogetherByTheClockOfRankZero) {
  std::vector<RunReport> reports(2);
  const auto errors = testing_support::run_group(2, "shm", [&](ProcessGroup group) {
    at::set_num_threads(1);
    TrainerOptions run = options(1000);
    run.max_time_seconds = group.rank() == 0 ? 1e-9 : 1e9;
    reports[static_cast<std::size_t>(group.rank())] = train(run, group, false).report;
  });
  ASSERT_EQ(errors, testing_support::no_errors(2));
  for (const RunReport& report : reports) {
    EXPECT_EQ(report.epochs.size(), 1U);
    EXPECT_TRUE(report.test);
  }
  EXPECT_EQ(reports[0].stop_reason, "the time limit of 1e-09 s has passed");
}

TEST(TrainerMaxTime, LeavesTheFirstEpochsAlone) {
  TrainerOptions run = options(5);
  run.max_time_seconds = 1e-9;
  EXPECT_EQ(events_of(run), "bseE");
  run.min_epochs = 2;
  EXPECT_EQ(events_of(run),
            "bsssssse"
            "sssssseE");
}

// Asks for a stop at the report of one step.
struct StoppingListener : CountingListener {
  StoppingListener(StopRequest& given, std::int64_t at) : request(given), step(at) {}
  void on_step(const StepReport& report) override {
    CountingListener::on_step(report);
    if ((report.epoch - 1) * report.steps_per_epoch + report.step == step) request.request(15);
  }
  StopRequest& request;
  std::int64_t step;
};

// Ends a run of 2 epochs of 6 steps at `step`, resumes it and expects the weights of a run that was
// not stopped. Returns the first report.
RunReport stopped_at(std::int64_t step, TrainerOptions run, std::string& events) {
  const TemporaryDirectory directory;
  const StateDict whole = train(run).state;
  StopRequest request;
  StoppingListener listener(request, step);
  run.checkpoints.directory = directory / "checkpoints";
  run.stop_request = &request;
  run.listeners = {&listener};
  const RunReport report = train(run).report;
  events = listener.events;
  run.resume = true;
  run.listeners.clear();
  request.clear();
  const Outcome second = train(run);
  EXPECT_FALSE(second.report.interrupted);
  expect_equal_bits(second.state, whole);
  return report;
}

TEST(TrainerStop, SavesWithinAnEpochWithoutAnEvaluationAndContinuesExactly) {
  std::string events;
  TrainerOptions run = options(2);
  run.min_epochs = 2;
  const RunReport report = stopped_at(2, run, events);
  EXPECT_EQ(events, "bssseE") << "the request of step 2 is seen after the next one";
  EXPECT_TRUE(report.interrupted);
  EXPECT_EQ(report.stop_signal, 15);
  EXPECT_EQ(report.stop_reason, "interrupted by signal 15 (Terminated)");
  EXPECT_THAT(report.saved_in, testing::EndsWith("/checkpoints/step-00000003"));
  EXPECT_FALSE(report.test);
  EXPECT_FALSE(report.already_complete);
}

// The state of a schedule or of the best value depends on the evaluation of a whole epoch.
TEST(TrainerStop, EvaluatesAWholeEpochAsTheRunWouldHave) {
  std::string events;
  TrainerOptions run = options(2);
  run.schedule = {.kind = ScheduleKind::kPlateau, .plateau = {.patience = 0, .threshold = 10}};
  const RunReport report = stopped_at(6, run, events);
  EXPECT_EQ(events, "bsssssseE");
  EXPECT_TRUE(report.interrupted);
  EXPECT_TRUE(report.test);
  EXPECT_THAT(report.saved_in, testing::EndsWith("/checkpoints/step-00000006"));
}

TEST(TrainerStop, DoesNotInterruptARunThatHasEnded) {
  StopRequest request;
  StoppingListener listener(request, 6);
  TrainerOptions run = options(1);
  run.stop_request = &request;
  run.listeners = {&listener};
  const RunReport report = train(run).report;
  EXPECT_TRUE(request.requested());
  EXPECT_FALSE(report.interrupted);
  EXPECT_EQ(report.stop_signal, 0);
  EXPECT_EQ(report.stop_reason + report.saved_in, "");
  EXPECT_TRUE(report.test);
}

TEST(TrainerStop, RemembersTheFirstRequest) {
  StopRequest request;
  EXPECT_FALSE(request.requested());
  request.request();
  EXPECT_TRUE(request.requested());
  request.request(2);
  EXPECT_EQ(request.signal(), 0);
  request.clear();
  EXPECT_FALSE(request.requested());
  request.request(2);
  EXPECT_EQ(request.signal(), 2);
}

// Only the last rank gets the request.
TEST(TrainerStop, EndsAllRanksWithOneStep) {
  for (const char* strategy : {"ddp", "zero1"}) {
    const TemporaryDirectory directory;
    TrainerOptions run = options(3);
    const StateDict whole = train_ranks(2, "shm", strategy, run).state;
    run.checkpoints.directory = directory / "checkpoints";
    std::vector<RunReport> reports(2);
    const auto errors = testing_support::run_group(2, "shm", [&](ProcessGroup group) {
      at::set_num_threads(1);
      StopRequest request;
      if (group.rank() == 1) request.request(2);
      TrainerOptions own = run;
      own.stop_request = &request;
      reports[static_cast<std::size_t>(group.rank())] =
          train(own, group, /*dropout=*/false, strategy).report;
    });
    ASSERT_EQ(errors, testing_support::no_errors(2));
    for (const RunReport& report : reports) {
      EXPECT_TRUE(report.interrupted) << strategy;
      EXPECT_EQ(report.stop_signal, 2);
      ASSERT_EQ(report.epochs.size(), 1U);
      EXPECT_EQ(report.epochs[0].steps, 2) << "asked after the first step, agreed after the next";
      EXPECT_FALSE(report.test);
    }
    EXPECT_THAT(reports[0].saved_in, testing::EndsWith("/checkpoints/step-00000002"));
    EXPECT_EQ(reports[1].saved_in, "") << "known to rank 0 only";
    run.resume = true;
    expect_equal_bits(train_ranks(2, "shm", strategy, run).state, whole);
  }
}

TEST(TrainerTrials, FindABrokenEvaluationBeforeTraining) {
  SpiedTask broken;
  broken.in_evaluation = [] { throw Error("broken"); };
  CountingListener listener;
  TrainerOptions run = options(1);
  run.listeners = {&listener};
  run.num_sanity_val_steps = 2;
  EXPECT_THROW(fit_spied(run, broken), Error);
  EXPECT_EQ(listener.events, "") << "no listener has made a file";
  SpiedTask sound;
  fit_spied(run, sound);
  EXPECT_EQ(sound.evaluated, 2 + 5);
  TrainerOptions plain = options(1);
  expect_equal_bits(train(run).state, train(plain).state);
}

TEST(TrainerTrials, TryTheProgramOut) {
  const TemporaryDirectory directory;
  CountingListener listener;
  TrainerOptions run = options(5);
  run.fast_dev_run = 2;
  run.checkpoints.directory = directory / "checkpoints";
  run.early_stopping = EarlyStoppingOptions{};
  run.listeners = {&listener};
  const RunReport report = train(run).report;
  EXPECT_EQ(listener.events, "bsseE");
  EXPECT_EQ(report.test->samples, 16);
  EXPECT_FALSE(std::filesystem::exists(run.checkpoints.directory));
  run.resume = true;
  EXPECT_THAT(message_of<ConfigError>([&] { train(run); }), HasSubstr("fast_dev_run"));
}

// A trial never takes more batches than the run would.
TEST(TrainerTrials, KeepSmallerLimits) {
  TrainerOptions run = options(5);
  run.fast_dev_run = 3;
  run.limit_train_batches = 2;
  run.limit_val_batches = 1;
  run.min_epochs = 4;
  run.num_sanity_val_steps = 2;
  run.val_check_interval = 1;
  run.early_stopping = EarlyStoppingOptions{.monitor = "a metric that the task lacks"};
  SpiedTask task;
  const RunReport trial = fit_spied(run, task);
  EXPECT_EQ(trial.epochs.size(), 1U);
  EXPECT_EQ(trial.epochs[0].steps, 2);
  EXPECT_EQ(task.evaluated, 1) << "only after the training";
  run.fast_dev_run = 1;
  EXPECT_EQ(fit_spied(run, task).epochs.at(0).steps, 1);
  run.fast_dev_run = 0;
  run.val_check_interval.reset();
  run.early_stopping.reset();
  run.overfit_batches = 3;
  run.min_epochs = run.num_sanity_val_steps = 0;
  const RunReport overfitted = fit_spied(run, task);
  EXPECT_EQ(overfitted.epochs.size(), 5U);
  EXPECT_EQ(overfitted.epochs[0].steps, 3) << "instead of limit_train_batches";
  EXPECT_EQ(overfitted.test->samples, 8);
}

TEST(TrainerTrials, LearnAFewBatchesByHeart) {
  SpiedTask task;
  std::vector<torch::Tensor> images;
  task.in_training = [&](const Batch& batch, const torch::Tensor& loss) {
    images.push_back(batch.images.clone());
    return loss;
  };
  TrainerOptions run = options(3);
  run.overfit_batches = 2;
  const RunReport report = fit_spied(run, task);
  ASSERT_EQ(images.size(), 6U);
  for (std::size_t i = 2; i < 6; ++i) EXPECT_TRUE(images[i].equal(images[i % 2])) << i;
  EXPECT_FALSE(images[0].equal(images[1]));
  EXPECT_EQ(report.test->samples, 16);
  expect_equal_bits_after_resume(run, 3);
}

TEST(TrainerModes, NameTheOperationThatMakesNoNumber) {
  SpiedTask task;
  // The root's slope at zero is infinite, and zero times infinity is NaN.
  task.in_training = [&](const Batch&, const torch::Tensor& loss) {
    return loss + (loss - loss).sqrt() * 0;
  };
  TrainerOptions run = options(1);
  run.max_steps = 1;
  fit_spied(run, task);
  run.detect_anomaly = true;
  const std::string message = message_of<std::exception>([&] { fit_spied(run, task); });
  EXPECT_THAT(message, HasSubstr("Sqrt"));
  EXPECT_THAT(message, HasSubstr("nan"));
  EXPECT_FALSE(torch::autograd::AnomalyMode::is_enabled()) << "the mode ends with the run";
}

TEST(TrainerModes, AskForDeterministicOperations) {
  std::vector<bool> seen;
  SpiedTask task;
  task.in_training = [&](const Batch&, const torch::Tensor& loss) {
    seen.push_back(at::globalContext().deterministicAlgorithms());
    return loss;
  };
  TrainerOptions run = options(1);
  run.max_steps = 1;
  fit_spied(run, task);
  run.deterministic = true;
  fit_spied(run, task);
  EXPECT_EQ(seen, (std::vector<bool>{false, true}));
  EXPECT_FALSE(at::globalContext().deterministicAlgorithms());
}

TEST(TrainerModes, MatricesAndConvolutionsFollowTheOptions) {
  std::vector<at::Float32MatmulPrecision> precisions;
  std::vector<bool> benchmarks;
  SpiedTask task;
  task.in_training = [&](const Batch&, const torch::Tensor& loss) {
    precisions.push_back(at::globalContext().float32MatmulPrecision());
    benchmarks.push_back(at::globalContext().benchmarkCuDNN());
    return loss;
  };
  TrainerOptions run = options(1);
  run.max_steps = 1;
  fit_spied(run, task);
  run.matmul_precision = MatmulPrecision::kHigh;
  run.cudnn_benchmark = true;
  fit_spied(run, task);
  EXPECT_THAT(precisions, testing::ElementsAre(at::Float32MatmulPrecision::HIGHEST,
                                               at::Float32MatmulPrecision::HIGH));
  EXPECT_EQ(benchmarks, (std::vector<bool>{false, true}));
  EXPECT_EQ(at::globalContext().float32MatmulPrecision(), at::Float32MatmulPrecision::HIGHEST);
  EXPECT_FALSE(at::globalContext().benchmarkCuDNN());
  run.deterministic = true;
  EXPECT_THAT(message_of<ConfigError>([&] { fit_spied(run, task); }),
              HasSubstr("Trainer: cudnn_benchmark and deterministic cannot be combined"));
}

TEST(TrainerModes, NameThePrecisionsOfMatrices) {
  for (const std::string& name : matmul_precision_names()) {
    EXPECT_EQ(to_string(parse_matmul_precision(name)), name);
  }
  EXPECT_THAT(message_of<ConfigError>([] { parse_matmul_precision("tf32"); }),
              HasSubstr("matmul_precision must be"));
}

TEST(TrainerLimits, AreChecked) {
  const auto refusal = [](const TrainerOptions& o) {
    return message_of<ConfigError>([&] { Trainer(o, make_strategy("single", group_of_one())); });
  };
  const std::pair<TrainerOptions, const char*> cases[] = {
      {{.min_epochs = 2}, "min_epochs"},
      {{.max_time_seconds = 0}, "max_time_seconds"},
      {{.early_stopping = EarlyStoppingOptions{.patience = 0}}, "patience"},
      {{.fast_dev_run = -1}, "fast_dev_run"},
      {{.limit_train_batches = 0}, "limit_train_batches"},
      {{.overfit_batches = -1}, "overfit_batches"},
      {{.check_val_every_n_epoch = 0}, "check_val_every_n_epoch"},
      {{.val_check_interval = 0}, "val_check_interval"},
      {{.num_sanity_val_steps = -1}, "num_sanity_val_steps"},
      {{.gradient_clip_value = 0}, "gradient_clip_value"},
      {{.log_every_n_steps = 0}, "log_every_n_steps"},
      {{.max_epochs = 0}, "max_epochs"},
      {{.max_steps = 0}, "max_steps"},
      {{.accumulate_grad_batches = 0}, "accumulate_grad_batches"},
      {{.limit_val_batches = -1}, "limit_val_batches"},
      {{.gradient_clip_norm = 0}, "gradient_clip_norm"},
      {{.ema_decay = 1.5}, "ema_decay"},
      {{.model_summary_depth = -2}, "model_summary_depth"},
      {{.log_histograms_every_n_steps = -1}, "log_histograms_every_n_steps"},
      {{.max_epochs = 1'000'000'001}, "max_epochs"},
      {{.min_epochs = -1}, "min_epochs"},
      {{.fast_dev_run = 1'000'000'001}, "fast_dev_run"},
      {{.accumulate_grad_batches = 1'000'000'001}, "accumulate_grad_batches"},
      {{.ema_decay = -0.5}, "ema_decay"},
  };
  for (const auto& [wrong, name] : cases) {
    EXPECT_THAT(refusal(wrong), testing::StartsWith(std::string(name) == "patience"
                                                        ? "early stopping: patience"
                                                        : std::string("Trainer: ") + name));
  }
  const TrainerOptions accepted[] = {
      {.max_epochs = 1'000'000'000},
      {.min_epochs = 1},
      {.max_steps = 1},
      {.early_stopping = EarlyStoppingOptions{.patience = 1}},
      {.fast_dev_run = 1'000'000'000},
      {.limit_train_batches = 1},
      {.accumulate_grad_batches = 1'000'000'000},
      {.limit_val_batches = 0},
      {.val_check_interval = 1},
      {.ema_decay = 0},
      {.ema_decay = 1},
      {.model_summary_depth = -1},
  };
  for (const TrainerOptions& each : accepted) EXPECT_EQ(refusal(each), "nothing was thrown");
}

TEST(TrainerLimits, BelongToTheIdentityOfARun) {
  const TemporaryDirectory directory;
  TrainerOptions run = options(1);
  run.checkpoints.directory = directory / "checkpoints";
  run.limit_train_batches = 2;
  run.gradient_clip_value = 0.5;
  run.ema_decay = 0.75;
  train(run);
  MnistNet net;
  ModelEma ema(*net, 0.75);
  NamedTensors training = Optimizer(*net, run.optimizer).state();
  for (const auto& entry : ema.state()) training.push_back(entry);
  const auto settings =
      load_checkpoint(run.checkpoints.directory, *net, training, "digits").settings;
  EXPECT_EQ(settings.at("limit_train_batches"), "2");
  EXPECT_EQ(settings.at("gradient_clip_value"), "0.5");
  EXPECT_EQ(settings.at("ema_decay"), "0.75");
  EXPECT_EQ(settings.at("ema_updates"), "2");
}

// Other versions of Lockstep read and write these names.
TEST(TrainerLimits, AreInCheckpointsBesideTheStatesOfTheRun) {
  const TemporaryDirectory directory;
  TrainerOptions run = options(1);
  run.checkpoints.directory = directory / "checkpoints";
  run.schedule = {.kind = ScheduleKind::kPlateau};
  run.early_stopping = EarlyStoppingOptions{};
  run.info.weights = "mnist.pth";
  run.info.split = "7";
  run.info.recipe_options = {{"width", "2"}};
  train(run);
  MnistNet net;
  const NamedTensors training = Optimizer(*net, run.optimizer).state();
  const auto settings =
      load_checkpoint(run.checkpoints.directory, *net, training, "digits").settings;
  const std::pair<const char*, const char*> expected[] = {{"seed", "5"},
                                                          {"global_batch", "20"},
                                                          {"world_size", "1"},
                                                          {"gradient_clip_norm", "none"},
                                                          {"gradient_clip_value", "none"},
                                                          {"ema_decay", "none"},
                                                          {"limit_train_batches", "none"},
                                                          {"overfit_batches", "0"},
                                                          {"precision", "32"},
                                                          {"loader", "native"},
                                                          {"mix", "none"},
                                                          {"fused_kernels", "no"},
                                                          {"accumulate_grad_batches", "1"},
                                                          {"batch_parts", "whole"},
                                                          {"split", "7"},
                                                          {"recipe.width", "2"},
                                                          {"initial_weights", "mnist.pth"},
                                                          {"best_watched", "min loss"}};
  for (const auto& [name, value] : expected) {
    const auto found = settings.find(name);
    ASSERT_TRUE(found != settings.end()) << name;
    EXPECT_EQ(found->second, value) << name;
  }
  for (const char* name : {"schedule_state", "early_stopping_state", "best_state"}) {
    EXPECT_TRUE(settings.contains(name)) << name;
  }
  EXPECT_FALSE(settings.contains("ema_updates")) << "the run has no average";
}

// Modes that were on before a run are on after it, even if the run switches them off.
TEST(GlobalModes, BringBackWhatWasThereBefore) {
  at::Context& context = at::globalContext();
  context.setBenchmarkCuDNN(true);
  context.setDeterministicAlgorithms(true, /*warn_only=*/true);
  {
    const GlobalModes modes({.deterministic = true});
    EXPECT_FALSE(context.deterministicAlgorithmsWarnOnly());
    EXPECT_TRUE(context.deterministicCuDNN());
    EXPECT_FALSE(context.benchmarkCuDNN());
  }
  EXPECT_TRUE(context.deterministicAlgorithms());
  EXPECT_TRUE(context.deterministicAlgorithmsWarnOnly());
  EXPECT_FALSE(context.deterministicCuDNN());
  EXPECT_TRUE(context.benchmarkCuDNN());
  {
    const GlobalModes modes({.cudnn_benchmark = true});
    EXPECT_TRUE(context.deterministicAlgorithmsWarnOnly()) << "an option that is left out";
  }
  EXPECT_TRUE(context.benchmarkCuDNN());
  context.setBenchmarkCuDNN(false);
  context.setDeterministicAlgorithms(false, /*warn_only=*/false);
}

TEST(GlobalModes, CheckForNanOnlyWhileTheyLast) {
  using torch::autograd::AnomalyMode;
  AnomalyMode::set_enabled(true, /*check_nan=*/false);
  {
    const GlobalModes modes({.detect_anomaly = true});
    EXPECT_TRUE(AnomalyMode::should_check_nan());
  }
  EXPECT_TRUE(AnomalyMode::is_enabled());
  EXPECT_FALSE(AnomalyMode::should_check_nan());
  AnomalyMode::set_enabled(false, /*check_nan=*/true);
}

TEST(TrainerLimits, NeedABatch) {
  ClassificationTask task(MnistNet(), ClassificationLoss::kNegativeLogLikelihood);
  Loader loader(train_images(), DistributedSampler(kImages, {.rank = 0, .world_size = 1}),
                kNormalize, {.batch_size = kImages + 1, .drop_last = true});
  Trainer trainer(options(1), make_strategy("single", group_of_one()));
  EXPECT_EQ(message_of<ConfigError>([&] { trainer.fit(task, loader, Trainer::LoaderFactory()); }),
            "Trainer: the training loader has no batches; use a smaller LoaderOptions::batch_size");
}

}  // namespace
}  // namespace lockstep::train
