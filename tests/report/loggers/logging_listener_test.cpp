// The listener that passes the reports of a run on to loggers.
#include <lockstep/formats/logged_text.h>
#include <lockstep/report/loggers/logging_listener.h>

#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <tests/report/sample_run.h>
#include <tests/support/captured_log.h>
#include <tests/support/messages.h>

namespace lockstep::testing_support {
namespace {

using ::testing::ElementsAre;

// Records everything that it receives.
class KeptLog final : public Logger {
 public:
  std::string place() const override { return "memory"; }
  void log_hyper_parameters(std::span<const HyperParameter> parameters) override {
    for (const HyperParameter& parameter : parameters) {
      events.push_back(parameter.name + "=" + formats::json_value(parameter));
    }
  }
  void log_scalars(const LogMoment& moment, std::span<const NamedValue> values) override {
    for (const auto& [name, value] : values) {
      std::string event = std::to_string(moment.step) + " " + std::string(name) + "=";
      formats::append_number(event, value, formats::kJsonNumberWords);
      events.push_back(event);
    }
  }
  void log_histogram(const LogMoment& moment, std::string_view name,
                     const Histogram& histogram) override {
    events.push_back(std::to_string(moment.step) + " " + std::string(name) + " of " +
                     std::to_string(histogram.counts.size()) + " bins");
  }
  void log_table(const LogMoment& moment, std::string_view name,
                 const LoggedTable& table) override {
    events.push_back(std::to_string(moment.step) + " " + std::string(name) + "=" +
                     formats::json_value(table));
  }
  void flush() override { events.push_back("flush"); }
  void finish(bool success) override {
    events.push_back(success ? "finished" : "failed");
    if (fails_at_end) throw DataError("the disk is full");
  }

  std::vector<std::string> events;
  bool fails_at_end = false;
};

// A listener with two loggers that the test can inspect. The first one can be made to fail.
struct Listening {
  explicit Listening(std::vector<HyperParameter> more = {}) {
    std::vector<std::unique_ptr<Logger>> loggers;
    for (KeptLog** place : {&failing, &kept}) {
      auto logger = std::make_unique<KeptLog>();
      *place = logger.get();
      loggers.push_back(std::move(logger));
    }
    listener = std::make_unique<LoggingListener>(std::move(loggers), std::move(more));
  }
  std::vector<std::string> take_events() { return std::exchange(kept->events, {}); }

  KeptLog* failing = nullptr;
  KeptLog* kept = nullptr;
  std::unique_ptr<LoggingListener> listener;
};

TEST(LoggingListener, TranslatesARun) {
  Listening run({{"lr", 0.1}});
  run.listener->on_run_begin(sample_info());
  EXPECT_THAT(run.take_events(),
              ElementsAre("recipe=\"mnist\"", "dataset=\"MNIST\"", "strategy=\"ddp\"",
                          "backend=\"shm\"", "loader=\"native\"", "precision=\"32\"",
                          "device=\"cpu\"", "fused_kernels=true", "world_size=2",
                          "threads_per_rank=1", "global_batch=128", "accumulate_grad_batches=1",
                          "max_epochs=10", "steps_per_epoch=469", "parameters=21840", "lr=0.1"));
  run.listener->on_step(
      {.epoch = 2, .step = 3, .steps_per_epoch = 469, .loss = 0.5, .learning_rate = 0.01});
  EXPECT_THAT(run.take_events(), ElementsAre("472 train/loss=0.5", "472 train/learning_rate=0.01"));
  run.listener->on_evaluation({.epoch = 2,
                               .step = 5,
                               .steps_per_epoch = 469,
                               .test = {.has_loss = false, .values = {{"psnr", 31.5}}}});
  EXPECT_THAT(run.take_events(), ElementsAre("474 validation/psnr=31.5"));
  run.listener->on_step(
      {.epoch = 2, .step = 3, .steps_per_epoch = 469, .loss = 0.5, .learning_rate = 0.01});
  run.take_events();
  run.listener->on_epoch_end(sample_epoch(2));
  EXPECT_THAT(
      run.take_events(),
      ElementsAre("472 epoch=2", "472 train/epoch_loss=0.125", "472 train/images_per_second=30000",
                  "472 train/seconds=2", "472 memory/rss_bytes=2.5e+08",
                  "472 phases/data_seconds=0.1", "472 phases/forward_seconds=0.5",
                  "472 phases/backward_seconds=1", "472 phases/communication_seconds=0.2",
                  "472 phases/optimizer_seconds=0.1", "472 validation/loss=0.0512",
                  "472 validation/accuracy=0.9842", "flush"));
  run.listener->on_run_end(sample_report(2));
  EXPECT_THAT(run.take_events(),
              ElementsAre("472 memory/peak_rss_bytes=312400000", "472 run/seconds_total=24.06",
                          "472 run/seconds_to_first_step=0.391", "finished"));
  run.listener->on_exception(std::runtime_error("the run"));
  EXPECT_TRUE(run.take_events().empty()) << "it has ended";
}

std::vector<std::string> parameters_of(const RunInfo& info) {
  std::vector<std::string> texts;
  for (const HyperParameter& parameter : hyper_parameters_of(info)) {
    texts.push_back(parameter.name + "=" + formats::json_value(parameter));
  }
  return texts;
}

TEST(LoggingListener, NamesWhatOnlySomeStrategiesHave) {
  using ::testing::Contains;
  using ::testing::Not;
  using ::testing::StartsWith;
  RunInfo dp = sample_info();
  dp.dp_loss = "on-each";
  dp.devices = 3;
  EXPECT_THAT(parameters_of(dp), Contains("dp_loss=\"on-each\""));
  EXPECT_THAT(parameters_of(dp), Contains("devices=3"));
  RunInfo pipeline = sample_info();
  pipeline.stages = 4;
  pipeline.micro_batches = 8;
  pipeline.schedule = "zbv";
  pipeline.recompute = true;
  pipeline.accumulate_grad_batches = 5;
  for (const char* parameter : {"stages=4", "micro_batches=8", "schedule_of_pipeline=\"zbv\"",
                                "recompute=true", "accumulate_grad_batches=5"}) {
    EXPECT_THAT(parameters_of(pipeline), Contains(parameter));
  }
  for (const char* name :
       {"dp_loss", "devices", "stages", "micro_batches", "schedule_of_pipeline", "recompute"}) {
    EXPECT_THAT(parameters_of(sample_info()), Not(Contains(StartsWith(name))));
  }
}

TEST(LoggingListener, NamesWhatARunIsMadeFrom) {
  using ::testing::Contains;
  RunInfo info = sample_info();
  info.recipe_options = {{"model", "resnet18"}};
  info.provenance = {{"model", "ResNet"}, {"augmentation", "Pad(4, fill 0)"}};
  info.weights = "resnet18.pth";
  info.resumed_from = "run/checkpoints/step-00000938";
  const std::vector<std::string> parameters = parameters_of(info);
  for (const char* parameter :
       {"model=\"resnet18\"", "augmentation=\"Pad(4, fill 0)\"", "weights=\"resnet18.pth\"",
        "resumed_from=\"run/checkpoints/step-00000938\""}) {
    EXPECT_THAT(parameters, Contains(parameter));
  }
  EXPECT_THAT(parameters, ::testing::Not(Contains("model=\"ResNet\""))) << "named by the recipe";
}

// A run that is resumed at its end has no steps left, only an evaluation.
TEST(LoggingListener, KnowsTheStepOfAnEpochWithoutSteps) {
  Listening run;
  run.listener->on_run_begin(sample_info());
  run.take_events();
  run.listener->on_epoch_end(sample_epoch(3));
  EXPECT_EQ(run.take_events().front(), "1407 epoch=3");
}

TEST(LoggingListener, LogsMomentumAndHistogramsWhereThereAreSome) {
  Listening run;
  run.listener->on_step({.epoch = 2,
                         .step = 3,
                         .steps_per_epoch = 469,
                         .loss = 0.5,
                         .learning_rate = 0.01,
                         .momentum = 0.875});
  EXPECT_THAT(run.take_events(), ElementsAre("472 train/loss=0.5", "472 train/learning_rate=0.01",
                                             "472 train/momentum=0.875"));
  run.listener->on_histograms(
      {.epoch = 2,
       .step = 4,
       .steps_per_epoch = 469,
       .histograms = {{.name = "parameters/fc.bias", .histogram = {.counts = {1, 2}}},
                      {.name = "gradients/fc.bias", .histogram = {.counts = {3}}}}});
  EXPECT_THAT(run.take_events(),
              ElementsAre("473 parameters/fc.bias of 2 bins", "473 gradients/fc.bias of 1 bins"));
}

TEST(LoggingListener, LogsTablesOfEveryEvaluation) {
  const Evaluation test = {
      .has_loss = false,
      .tables = {{.name = "confusion", .labels = {"a", "b"}, .rows = {{1, 2}, {3, 4}}},
                 {.name = "counts", .rows = {{5}}}}};
  const std::string confusion =
      "472 validation/confusion={\"labels\":[\"a\",\"b\"],\"rows\":[[1,2],[3,4]]}";
  const std::string counts = "472 validation/counts={\"labels\":[],\"rows\":[[5]]}";
  Listening run;
  run.listener->on_evaluation({.epoch = 2, .step = 3, .steps_per_epoch = 469, .test = test});
  EXPECT_THAT(run.take_events(), ElementsAre(confusion, counts));
  EpochReport epoch = sample_epoch(2);
  epoch.test = test;
  run.listener->on_epoch_end(epoch);
  const std::vector<std::string> events = run.take_events();
  ASSERT_GE(events.size(), 3U);
  EXPECT_THAT(std::vector<std::string>(events.end() - 3, events.end()),
              ElementsAre(confusion, counts, "flush"));
}

TEST(LoggingListener, SaysThatARunFailed) {
  Listening run;
  run.listener->on_run_begin(sample_info());
  run.take_events();
  run.listener->on_exception(std::runtime_error("the run"));
  EXPECT_THAT(run.take_events(), ElementsAre("failed"));
}

// A time limit is a planned end.
TEST(LoggingListener, SaysThatASignalEndedARunTooEarly) {
  for (const int number : {0, 15}) {
    Listening run;
    RunReport report = sample_report(1);
    report.interrupted = true;
    report.stop_signal = number;
    run.listener->on_run_end(report);
    EXPECT_EQ(run.take_events().back(), number == 0 ? "finished" : "failed");
  }
}

TEST(LoggingListener, EndsTheLogsBehindOneThatFails) {
  {
    Listening run;
    run.failing->fails_at_end = true;
    EXPECT_EQ(message_of<DataError>([&] { run.listener->on_run_end(sample_report(1)); }),
              "the disk is full");
    EXPECT_EQ(run.take_events().back(), "finished");
  }
  Listening run;
  run.failing->fails_at_end = true;
  const CapturedLog log;
  run.listener->on_exception(std::runtime_error("the run"));
  EXPECT_THAT(run.take_events(), ElementsAre("failed"));
  EXPECT_THAT(log.lines(),
              ElementsAre("warning: the logs of the run could not be ended: the disk is full"));
}

TEST(LoggingListener, LogsNothingOfARunThatWasCompleteBefore) {
  Listening run;
  RunReport report = sample_report(0);
  report.already_complete = true;
  run.listener->on_run_end(report);
  EXPECT_THAT(run.take_events(), ElementsAre("finished"));
}

// Loggers make their folders when they are opened.
TEST(LoggingListener, OpensItsLoggersWhenARunBeginsThatHasSomethingToLog) {
  int opened = 0;
  const auto open = [&opened] {
    ++opened;
    std::vector<std::unique_ptr<Logger>> loggers;
    loggers.push_back(std::make_unique<KeptLog>());
    return loggers;
  };
  RunReport report = sample_report(0);
  const std::unique_ptr<LoggingListener> goes_on = LoggingListener::opened_by(open);
  EXPECT_EQ(opened, 0);
  goes_on->on_run_begin(report.info);
  EXPECT_EQ(opened, 1);
  goes_on->on_run_end(report);
  report.info.already_complete = report.already_complete = true;
  const std::unique_ptr<LoggingListener> complete = LoggingListener::opened_by(open);
  complete->on_run_begin(report.info);
  complete->on_run_end(report);
  EXPECT_EQ(opened, 1);
}

}  // namespace
}  // namespace lockstep::testing_support
