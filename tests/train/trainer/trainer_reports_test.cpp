// What a run reports besides its steps and epochs: momentum, histograms, profile and trace.
#include <lockstep/train/trainer.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/functional/loss.h>
#include <nlohmann/json.hpp>

#include <lockstep/core/error.h>
#include <lockstep/core/trace/span_recorder.h>
#include <tests/support/captured_log.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>
#include <tests/train/trainer/trainer_runs.h>

namespace lockstep::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::CapturedLog;
using testing_support::message_of;
using testing_support::TemporaryDirectory;

struct ReportListener : Listener {
  void on_step(const StepReport& report) override {
    steps += "s";
    momenta.push_back(report.momentum);
  }
  void on_histograms(const HistogramReport& report) override {
    steps += "h";
    histograms.push_back(report);
  }
  std::string steps;
  std::vector<std::optional<double>> momenta;
  std::vector<HistogramReport> histograms;
};

// The epoch's loss counts each sample once, although its last step has fewer batches and its last
// batch fewer samples than the others. The weights stay as they are.
TEST(TrainerReports, HaveTheMeanLossOverTheSamplesOfAnEpoch) {
  MnistNet net = make_digits_net(/*dropout=*/false);
  Loader loader(train_images(), SequentialSampler(kImages), kNormalize, {.batch_size = kImages});
  loader.set_epoch(0);
  Batch all;
  ASSERT_TRUE(loader.next(all));
  const auto expected =
      torch::nn::functional::nll_loss(net->forward(all.images), all.labels).item<double>();
  for (const std::int64_t parts : {1, 4}) {
    TrainerOptions still = options(1);
    still.optimizer = SgdOptions{.lr = 0};
    still.accumulate_grad_batches = parts;
    still.limit_val_batches = 0;
    for (const int ranks : {1, 2}) {
      const RunReport report =
          train_ranks(ranks, "shm", ranks == 1 ? "single" : "ddp", still).report;
      EXPECT_EQ(report.epochs.at(0).steps, parts == 1 ? 6 : 2);
      EXPECT_NEAR(report.epochs.at(0).train_loss, expected, 1e-5) << parts << ' ' << ranks;
    }
  }
}

// Counts the objects of its kind, and the runs that they have seen.
struct CountedListener : Listener {
  CountedListener(int& alive_, int& runs_) : alive(alive_), runs(runs_) { ++alive; }
  ~CountedListener() override { --alive; }
  void on_run_end(const RunReport&) override { ++runs; }
  int& alive;
  int& runs;
};

// Copies of options share their listeners. The last of the handles that own one destroys it.
TEST(ListenerHandles, OwnWhatTheyWereGiven) {
  int alive = 0;
  int runs = 0;
  {
    CountedListener mine(alive, runs);
    const auto shared = std::make_shared<CountedListener>(alive, runs);
    {
      TrainerOptions run = options(1);
      run.max_steps = 1;
      run.limit_val_batches = 0;
      run.listeners = {&mine};
      run.listeners.push_back(std::make_unique<CountedListener>(alive, runs));
      run.listeners.emplace_back(shared);
      EXPECT_EQ(alive, 3);
      {
        const TrainerOptions copy = run;
        run.listeners.clear();
        EXPECT_EQ(alive, 3) << "the copy has it";
        train(copy);
        EXPECT_EQ(runs, 3);
        EXPECT_EQ(&*copy.listeners.at(0), &mine);
        EXPECT_EQ(copy.listeners.at(2).operator->(), shared.get());
        EXPECT_TRUE(static_cast<bool>(copy.listeners.at(1)));
      }
      EXPECT_EQ(alive, 2);
    }
    EXPECT_EQ(alive, 2) << "one on the stack, and one with another owner";
  }
  EXPECT_EQ(alive, 0);
  EXPECT_FALSE(static_cast<bool>(ListenerHandle(std::unique_ptr<CountedListener>())));
  EXPECT_FALSE(static_cast<bool>(ListenerHandle(static_cast<Listener*>(nullptr))));
}

// The reports of a run, and the order in which they come.
struct WholeListener : Listener {
  void on_run_begin(const RunInfo& info) override { begun = info; }
  void on_epoch_end(const EpochReport& report) override { epochs.push_back(report); }
  void on_run_end(const RunReport& report) override { ended = report; }
  RunInfo begun;
  std::vector<EpochReport> epochs;
  RunReport ended;
};

// Each report is complete before listeners get it: it equals what fit() returns. The run learns
// nothing, so that it stops after its second epoch.
TEST(TrainerReports, AreCompleteWhenListenersGetThem) {
  WholeListener listener;
  int asked = 0;
  TrainerOptions run = options(3);
  run.optimizer = SgdOptions{.lr = 0};
  run.limit_train_batches = 2;
  run.early_stopping = EarlyStoppingOptions{.patience = 1};
  run.profiler.kind = Profiler::kSimple;
  run.command_seconds = [&asked] { return 100.0 + static_cast<double>(asked++); };
  run.listeners = {&listener};
  const RunReport report = train(run, group_of_one(), /*dropout=*/false).report;

  const RunInfo& begun = listener.begun;
  EXPECT_EQ(begun.recipe, "digits");
  EXPECT_EQ(begun.strategy, "single");
  EXPECT_EQ(begun.backend, "none");
  EXPECT_EQ(begun.loader, "native");
  EXPECT_EQ(begun.precision, "32");
  EXPECT_EQ(begun.device, "cpu");
  EXPECT_EQ(begun.global_batch, kGlobalBatch);
  EXPECT_EQ(begun.parameters, 21840);
  EXPECT_EQ(begun.max_epochs, 3);
  EXPECT_EQ(begun.steps_per_epoch, 2);
  EXPECT_EQ(begun.slow_precisions, report.info.slow_precisions);
  EXPECT_EQ(begun.provenance.at("early_stopping"), "loss:1:min");
  EXPECT_GT(begun.setup.model, 0);
  EXPECT_FALSE(begun.already_complete);

  ASSERT_EQ(report.epochs.size(), 2U);
  ASSERT_EQ(listener.epochs.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    const EpochReport& told = listener.epochs[i];
    const EpochReport& returned = report.epochs[i];
    EXPECT_EQ(told.epoch, returned.epoch);
    EXPECT_EQ(told.steps, 2);
    EXPECT_EQ(told.steps_per_epoch, 2);
    EXPECT_EQ(told.train_loss, returned.train_loss);
    EXPECT_EQ(told.seconds, returned.seconds);
    EXPECT_EQ(told.phases.data, returned.phases.data);
    EXPECT_EQ(told.first_batch_seconds, returned.first_batch_seconds);
    EXPECT_EQ(told.images_per_second, returned.images_per_second);
    EXPECT_GT(told.rss_bytes, 0);
    EXPECT_EQ(told.rss_bytes, returned.rss_bytes);
    ASSERT_TRUE(told.test && returned.test);
    EXPECT_EQ(told.test->loss, returned.test->loss);
  }

  EXPECT_EQ(asked, 2) << "after the first step, and at the end";
  const RunReport& ended = listener.ended;
  for (const RunReport* each : {&ended, &report}) {
    EXPECT_EQ(each->seconds_to_first_step, 100);
    EXPECT_EQ(each->seconds_total, 101);
    EXPECT_EQ(each->epochs.size(), 2U);
    EXPECT_EQ(each->profile.size(), 8U);
    EXPECT_EQ(each->skipped_images, 0);
    EXPECT_THAT(each->stop_reason, testing::MatchesRegex("loss has not improved on [0-9.]+ in 1 "
                                                         "evaluation"));
    EXPECT_FALSE(each->already_complete);
    EXPECT_FALSE(each->interrupted);
    ASSERT_TRUE(each->test && each->best);
    EXPECT_EQ(each->test->loss, report.epochs[1].test->loss);
    EXPECT_EQ(each->best->name, "loss");
    EXPECT_EQ(each->best->value, report.epochs[0].test->loss);
    EXPECT_EQ(each->best->epoch, 1) << "the first of equal values";
    EXPECT_EQ(each->best->weights, "") << "the run keeps no checkpoints";
  }
  EXPECT_GT(ended.peak_rss_bytes, 0);
  EXPECT_EQ(ended.peak_rss_bytes, report.peak_rss_bytes);
  EXPECT_EQ(ended.info.strategy, "single");
}

// A program that stops its run without a signal.
TEST(TrainerReports, SayThatTheProgramAskedForTheEnd) {
  struct AskingListener : Listener {
    explicit AskingListener(StopRequest& given) : request(given) {}
    void on_step(const StepReport& report) override {
      if (report.step == 2) request.request();
    }
    StopRequest& request;
  };
  StopRequest request;
  AskingListener listener(request);
  TrainerOptions run = options(2);
  run.stop_request = &request;
  run.listeners = {&listener};
  const RunReport report = train(run).report;
  EXPECT_EQ(report.stop_reason, "stopped at the program's request");
  EXPECT_TRUE(report.interrupted);
  EXPECT_EQ(report.stop_signal, 0);
  EXPECT_EQ(report.saved_in, "") << "the run keeps no checkpoints";
  ASSERT_EQ(report.epochs.size(), 1U);
  EXPECT_EQ(report.epochs[0].steps, 3) << "the request is seen after the next step";
  EXPECT_EQ(report.epochs[0].steps_per_epoch, 6);
  EXPECT_FALSE(report.test);
}

// The reports of an epoch that a run resumes within: its steps are those of this run alone.
TEST(TrainerReports, CountTheStepsOfThisRun) {
  const TemporaryDirectory directory;
  TrainerOptions run = options(2);
  run.checkpoints.directory = directory / "checkpoints";
  run.max_steps = 8;
  train(run);
  run.max_steps.reset();
  run.resume = true;
  WholeListener listener;
  run.listeners = {&listener};
  const RunReport report = train(run).report;
  EXPECT_EQ(listener.begun.first_epoch, 2);
  EXPECT_EQ(listener.begun.first_step, 2);
  EXPECT_FALSE(listener.begun.already_complete);
  EXPECT_THAT(listener.begun.resumed_from, testing::EndsWith("/checkpoints/step-00000008"));
  ASSERT_EQ(report.epochs.size(), 1U);
  EXPECT_EQ(report.epochs[0].epoch, 2);
  EXPECT_EQ(report.epochs[0].steps, 4);
  EXPECT_EQ(report.epochs[0].steps_per_epoch, 6);
  EXPECT_NEAR(report.epochs[0].images_per_second * report.epochs[0].seconds, kImages - 40, 1e-6);
  const RunReport complete = train(run).report;
  EXPECT_TRUE(complete.already_complete);
  EXPECT_TRUE(listener.begun.already_complete);
  EXPECT_EQ(listener.begun.first_epoch, 3);
  EXPECT_EQ(listener.begun.first_step, 0);
  EXPECT_TRUE(complete.epochs.empty());
  EXPECT_EQ(complete.seconds_to_first_step, 0) << "there was no step";
  ASSERT_TRUE(complete.test);
  EXPECT_NEAR(complete.test->loss, report.test->loss, 1e-6);
}

TEST(TrainerMomentum, GoesWithTheOneCycle) {
  for (const OptimizerOptions& optimizer :
       {OptimizerOptions(SgdOptions{.lr = 0.05, .momentum = 0.9}),
        OptimizerOptions(AdamOptions{.lr = 0.001})}) {
    ReportListener listener;
    TrainerOptions run = options(2);
    run.optimizer = optimizer;
    run.listeners = {&listener};
    run.schedule = {.kind = ScheduleKind::kOneCycle};
    const StateDict still = train(run).state;
    EXPECT_THAT(listener.momenta, testing::Each(std::nullopt));
    listener.momenta.clear();
    run.schedule.cycle_momentum = true;
    const StateDict moved = train(run).state;
    ASSERT_EQ(listener.momenta.size(), 12U);
    for (std::int64_t step = 0; step < 12; ++step) {
      EXPECT_EQ(listener.momenta[static_cast<std::size_t>(step)],
                scheduled_momentum(run.schedule, step, 6, 12));
    }
    EXPECT_GT(distance(still, moved), 0) << "the optimizer uses it";
  }
}

TEST(TrainerMomentum, IsThatOfOneProcessWithEveryStrategy) {
  TrainerOptions run = options(1);
  run.schedule = {.kind = ScheduleKind::kOneCycle, .cycle_momentum = true};
  const StateDict alone = train(run, group_of_one(), /*dropout=*/false).state;
  for (const char* strategy : {"ddp", "zero1"}) {
    expect_close(train_ranks(2, "shm", strategy, run).state, alone);
  }
}

TEST(TrainerMomentum, IsNotCycledWhereThereIsNone) {
  TrainerOptions run = options(1);
  run.optimizer = SgdOptions{.lr = 0.05};
  run.schedule = {.kind = ScheduleKind::kOneCycle, .cycle_momentum = true};
  EXPECT_EQ(
      message_of<ConfigError>([&] { train(run); }),
      "Trainer: cycle_momentum needs an optimizer with momentum, but sgd has a momentum of 0; "
      "set one, or use adam or adamw");
}

double count_of_all(const Histogram& histogram) {
  double sum = 0;
  for (const double count : histogram.counts) sum += count;
  return sum;
}

TEST(TrainerHistograms, AreOfParametersAndTheGradientsThatTheStepHasUsed) {
  ReportListener listener;
  TrainerOptions run = options(2);
  run.optimizer = SgdOptions{.lr = 0.05};
  run.schedule = {};
  run.listeners = {&listener};
  const StateDict plain = train(run).state;
  EXPECT_EQ(listener.steps, "ssssssssssss") << "it is off by default";
  listener.steps.clear();
  run.log_histograms_every_n_steps = 4;
  run.gradient_clip_value = 1e-3;
  run.log_every_n_steps = 5;
  const StateDict logged = train(run).state;
  EXPECT_EQ(listener.steps,
            "hss"
            "hssh")
      << "steps 4, 8 and 12 of the run";
  ASSERT_EQ(listener.histograms.size(), 3U);
  const HistogramReport& last = listener.histograms[2];
  EXPECT_EQ(last.epoch, 2);
  EXPECT_EQ(last.step, 6);
  EXPECT_EQ(last.steps_per_epoch, 6);
  std::vector<std::string> names;
  for (const RunHistogram& each : last.histograms) names.push_back(each.name);
  ASSERT_EQ(names.size(), 2 * 8U);
  EXPECT_EQ(names[0], "parameters/conv1.weight");
  EXPECT_EQ(names[1], "gradients/conv1.weight");
  EXPECT_EQ(count_of_all(last.histograms[0].histogram), 250);
  EXPECT_EQ(count_of_all(last.histograms[1].histogram), 250);
  EXPECT_NEAR(last.histograms[0].histogram.sum, logged[0].second.sum().item<double>(), 1e-4)
      << "the parameters are those after the step";
  const auto& edges = last.histograms[1].histogram.edges;
  EXPECT_NEAR(std::max(-edges.front(), edges.back()), 1e-3, 1e-9) << "the gradients are clipped";
  run.log_histograms_every_n_steps = 0;
  expect_equal_bits(train(run).state, logged);
  EXPECT_GT(distance(plain, logged), 0);
}

// The memory of such a gradient has the opposite values.
struct MakesGradientsLazy : torch::autograd::PostAccumulateGradHook {
  void operator()(const torch::autograd::Variable& parameter) override {
    const torch::NoGradGuard no_grad;
    torch::Tensor& gradient = parameter.mutable_grad();
    gradient = at::_neg_view(-gradient);
  }
};

std::vector<double> sums_of_histograms(bool has_lazy_gradients) {
  MnistNet net = make_digits_net(/*dropout=*/false);
  for (const torch::Tensor& parameter : net->parameters()) {
    if (!has_lazy_gradients) continue;
    torch::autograd::impl::set_post_acc_grad_hooks(parameter,
                                                   std::make_unique<MakesGradientsLazy>());
  }
  ClassificationTask task(net, ClassificationLoss::kNegativeLogLikelihood);
  ProcessGroup group = group_of_one();
  Loader loader = train_loader(group);
  ReportListener listener;
  TrainerOptions run = options(1);
  run.log_histograms_every_n_steps = 3;
  run.listeners = {&listener};
  Trainer(run, make_strategy("single", group)).fit(task, loader);
  std::vector<double> sums;
  for (const HistogramReport& report : listener.histograms) {
    for (const RunHistogram& each : report.histograms) sums.push_back(each.histogram.sum);
  }
  return sums;
}

TEST(TrainerHistograms, AreOfTheValuesOfLazyGradients) {
  const std::vector<double> expected = sums_of_histograms(/*has_lazy_gradients=*/false);
  const std::vector<double> sums = sums_of_histograms(/*has_lazy_gradients=*/true);
  ASSERT_EQ(expected.size(), 2 * 2 * 8U);
  ASSERT_EQ(sums.size(), expected.size());
  double largest = 0;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    EXPECT_NEAR(sums[i], expected[i], 1e-4 + 1e-2 * std::abs(expected[i])) << i;
    if (i % 2 == 1) largest = std::max(largest, std::abs(expected[i]));
  }
  EXPECT_GT(largest, 1e-3) << "gradients without a sign are no test";
}

TEST(TrainerHistograms, KnowWhichRankHasWhat) {
  TrainerOptions run = options(1);
  run.log_histograms_every_n_steps = 6;
  const auto histograms_of = [&](const char* strategy) {
    ReportListener listener;
    const auto errors = testing_support::run_group(2, "shm", [&](ProcessGroup group) {
      at::set_num_threads(1);
      TrainerOptions own = run;
      if (group.rank() == 0) own.listeners = {&listener};
      train(own, group, /*dropout=*/false, strategy);
    });
    EXPECT_EQ(errors, testing_support::no_errors(2));
    return listener.histograms.empty() ? std::vector<RunHistogram>()
                                       : listener.histograms[0].histograms;
  };
  const auto ddp = histograms_of("ddp");
  const auto zero = histograms_of("zero1");
  ASSERT_EQ(ddp.size(), 16U);
  ASSERT_EQ(zero.size(), 8U) << "each rank has its share of the gradients";
  EXPECT_NEAR(ddp[0].histogram.sum, zero[0].histogram.sum, 1e-4);
  EXPECT_THAT(zero[1].name, HasSubstr("parameters/"));
}

TEST(TrainerProfiler, SaysHowLongEachPartOfTheRunTook) {
  const TemporaryDirectory directory;
  TrainerOptions run = options(2);
  run.checkpoints.directory = directory / "checkpoints";
  run.accumulate_grad_batches = 2;
  EXPECT_TRUE(train(run).report.profile.empty()) << "it is off by default";
  run.profiler.kind = Profiler::kSimple;
  run.overwrite = true;
  const RunReport report = train(run).report;
  std::vector<std::string> names;
  std::vector<std::int64_t> calls;
  double sum = 0;
  for (const ProfiledAction& action : report.profile) {
    names.push_back(action.name);
    calls.push_back(action.calls);
    sum += action.seconds;
    EXPECT_TRUE(action.seconds > 0 || action.name == "communication") << action.name;
  }
  EXPECT_THAT(names, ElementsAre("data", "forward", "backward", "communication", "optimizer",
                                 "evaluation", "checkpoint", "other"));
  EXPECT_THAT(calls, ElementsAre(12, 12, 12, 12, 6, 2, 2, 1));
  double backward = 0;
  for (const EpochReport& epoch : report.epochs) backward += epoch.phases.backward;
  EXPECT_DOUBLE_EQ(report.profile[2].seconds, backward);
  EXPECT_LE(sum, report.seconds_total);
}

// The names of the complete events in a trace.
std::multiset<std::string> names_in_trace(const std::filesystem::path& file) {
  std::ifstream in(file);
  const auto trace = nlohmann::json::parse(in);
  std::multiset<std::string> names;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.value("ph", "") == "X") names.insert(event.at("name").get<std::string>());
  }
  return names;
}

TEST(TrainerProfiler, WritesATraceOfSomeSteps) {
  const TemporaryDirectory directory;
  TrainerOptions run = options(1);
  run.profiler = {
      .kind = Profiler::kTrace, .trace_file = directory / "run/trace.json", .trace_steps = 3};
  const RunReport report = train(run).report;
  EXPECT_FALSE(report.profile.empty());
  auto names = names_in_trace(run.profiler.trace_file);
  EXPECT_EQ(names.count("lockstep: optimizer"), 3U);
  EXPECT_EQ(names.count("lockstep: forward and backward"), 3U);
  EXPECT_EQ(names.count("lockstep: data"), 3U);
  EXPECT_GE(names.count("aten::addmm"), 6U) << "of two linear layers";
  run.profiler.trace_steps = 100;
  train(run);
  names = names_in_trace(run.profiler.trace_file);
  EXPECT_EQ(names.count("lockstep: optimizer"), 5U) << "of six steps all but the first";
}

TEST(TrainerProfiler, SaysThatARunIsTooShortForATrace) {
  TemporaryDirectory directory;
  directory.write("trace.json", "of an earlier run");
  TrainerOptions run = options(1);
  run.max_steps = 1;
  run.profiler = {.kind = Profiler::kTrace, .trace_file = directory / "trace.json"};
  const CapturedLog log;
  train(run);
  EXPECT_FALSE(std::filesystem::exists(run.profiler.trace_file));
  const std::vector<std::string> lines = log.lines();
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_THAT(lines[0], HasSubstr("trace.json: the run ended before its step 2"));
}

TEST(TrainerProfiler, RefusesWhatCannotBeTraced) {
  TrainerOptions run = options(1);
  run.profiler.kind = Profiler::kTrace;
  EXPECT_EQ(message_of<ConfigError>([&] { train(run); }),
            "profiler: a trace needs trace_file, where it is written to");
  run.profiler.trace_file = "/dev/null/trace.json";
  EXPECT_THROW(train(run), ConfigError);
  run.profiler.trace_steps = 0;
  EXPECT_THROW(train(run), ConfigError);
  EXPECT_EQ(parse_profiler("simple"), Profiler::kSimple);
  EXPECT_EQ(parse_profiler("trace"), Profiler::kTrace);
  EXPECT_THROW(parse_profiler("advanced"), ConfigError);
}

// The failing run has recorded its second step and a part of the third.
TEST(TrainerProfiler, EndsItsTraceWithARunThatFails) {
  const TemporaryDirectory directory;
  TrainerOptions run = options(1);
  run.profiler = {.kind = Profiler::kTrace, .trace_file = directory / "trace.json"};
  CountingListener failing;
  failing.steps_until_failure = 2;
  run.listeners = {&failing};
  EXPECT_THROW(train(run), Error);
  EXPECT_FALSE(std::filesystem::exists(run.profiler.trace_file));
  run.listeners.clear();
  train(run);
  EXPECT_EQ(names_in_trace(run.profiler.trace_file).count("lockstep: optimizer"), 5U);
}

TEST(TrainerTrace, HasTheLastSteps) {
  const TemporaryDirectory directory;
  TrainerOptions run = options(1);
  run.limit_val_batches = 0;
  run.trace = {.file = directory / "run/trace.json", .steps = 2};
  train(run);
  const auto names = names_in_trace(run.trace.file);
  EXPECT_EQ(names.count("step 6"), 1U);
  EXPECT_EQ(names.count("step 5"), 1U);
  EXPECT_EQ(names.count("step 4"), 0U);
  for (const char* phase : {"forward", "backward", "optimizer"}) {
    EXPECT_EQ(names.count(phase), 2U) << phase;
  }
  EXPECT_FALSE(is_recording()) << "after the run";
}

// An old file must not pass for the trace of this run.
TEST(TrainerTrace, EndsWithARunThatFails) {
  TemporaryDirectory directory;
  directory.write("trace.json", "of an earlier run");
  TrainerOptions run = options(1);
  run.trace.file = directory / "trace.json";
  CountingListener failing;
  failing.steps_until_failure = 2;
  run.listeners = {&failing};
  EXPECT_THROW(train(run), Error);
  EXPECT_FALSE(is_recording());
  EXPECT_FALSE(std::filesystem::exists(run.trace.file));
}

// The command that has completed a run may be repeated, as `--resume auto` allows.
TEST(TrainerTrace, KeepsTheFilesOfACompleteRun) {
  const TemporaryDirectory directory;
  TrainerOptions run = options(1);
  run.checkpoints.directory = directory / "checkpoints";
  run.resume = Resume::kAuto;
  run.trace.file = directory / "trace.json";
  run.profiler = {.kind = Profiler::kTrace, .trace_file = directory / "operations.json"};
  train(run);
  const std::string trace = testing_support::read_text(run.trace.file);
  const std::string operations = testing_support::read_text(run.profiler.trace_file);
  const CapturedLog log;
  EXPECT_TRUE(train(run).report.already_complete);
  EXPECT_TRUE(testing_support::read_text(run.trace.file) == trace);
  EXPECT_TRUE(testing_support::read_text(run.profiler.trace_file) == operations);
  EXPECT_THAT(log.lines(), testing::IsEmpty()) << "nothing is missing";
  run.max_epochs = 2;
  EXPECT_FALSE(train(run).report.already_complete);
  EXPECT_FALSE(testing_support::read_text(run.trace.file) == trace) << "of the new steps";
}

TEST(TrainerTrace, KeepsOneToAHundredSteps) {
  for (const std::int64_t steps : {-1, 0, 101}) {
    EXPECT_THAT(message_of<ConfigError>([&] { validate(TraceOptions{.steps = steps}); }),
                HasSubstr("Trainer: trace.steps must be from 1 to 100"));
  }
  for (const std::int64_t steps : {1, 100}) EXPECT_NO_THROW(validate(TraceOptions{.steps = steps}));
}

}  // namespace
}  // namespace lockstep::train
