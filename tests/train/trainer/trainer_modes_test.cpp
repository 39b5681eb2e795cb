// Modules that the user puts into evaluation mode keep it in a run.
#include <lockstep/train/trainer.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/autocast_mode.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>

#include <lockstep/core/error.h>
#include <lockstep/models/mnist_stages.h>
#include <lockstep/train/optimization/slow_precision.h>
#include <tests/support/captured_log.h>
#include <tests/support/messages.h>
#include <tests/train/staged_net.h>

namespace lockstep::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_support::CapturedLog;
using testing_support::no_errors;
using testing_support::run_group;

constexpr StagedNetOptions kModesNet{.dropout = true, .norm = true};

// Puts batch normalisation and dropout into evaluation mode.
void freeze_layers(torch::nn::Sequential net) {
  for (const auto& module : net->modules(/*include_self=*/false)) {
    const bool frozen = module->as<torch::nn::BatchNorm1d>() != nullptr ||
                        module->as<torch::nn::Dropout>() != nullptr;
    if (frozen) module->eval();
  }
}

std::vector<std::string> names_in_eval_mode(const torch::nn::Module& module) {
  std::vector<std::string> names;
  for (const auto& each : module.named_modules("")) {
    if (!each.value()->is_training()) names.push_back(each.key());
  }
  return names;
}

class FreezingTask final : public ClassificationTask {
 public:
  FreezingTask(const torch::nn::Sequential& net, bool in_hook)
      : ClassificationTask(net, ClassificationLoss::kCrossEntropy,
                           [net](int stages) { return cut_staged_net(net, kModesNet, stages); }),
        net_(net),
        in_hook_(in_hook) {
    if (!in_hook_) freeze_layers(net_);
  }
  void on_train_start() override {
    ++starts_;
    if (in_hook_) freeze_layers(net_);
  }
  int starts() const { return starts_; }

 private:
  torch::nn::Sequential net_;
  bool in_hook_;
  int starts_ = 0;
};

TrainerOptions modes_run() {
  TrainerOptions run = options(2);
  run.optimizer = SgdOptions{.lr = 0.05, .momentum = 0.9};
  run.schedule = {};
  run.val_check_interval = 2;  // evaluations before training, within epochs and at their ends
  run.num_sanity_val_steps = 1;
  run.model_summary_depth = 1;
  return run;
}

// Takes equal steps with LibTorch's own optimizer.
StateDict trained_by_hand() {
  torch::nn::Sequential net = make_staged_net(kModesNet);
  freeze_layers(net);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  Loader loader = train_loader(group_of_one());
  for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
    loader.set_epoch(epoch);
    Batch batch;
    while (loader.next(batch)) {
      optimizer.zero_grad();
      torch::nn::functional::cross_entropy(net->forward(batch.images), batch.labels).backward();
      optimizer.step();
    }
  }
  return state_dict(*net);
}

struct ModesWay {
  const char* name;
  int ranks;
  StagedRun run;
};

std::vector<ModesWay> modes_ways() {
  const std::vector<torch::Device> two(2, torch::kCPU);
  const StrategyOptions staged = {.stages = 2, .micro_batches = 2};
  return {{"single", 1, {}},
          {"dp", 1, {.strategy = "dp", .options = {.devices = two}}},
          {"ddp", 2, {.strategy = "ddp"}},
          {"zero1", 2, {.strategy = "zero1"}},
          {"threads", 1, {.strategy = "pipeline", .options = staged}},
          {"ranks", 2, {.strategy = "pipeline", .options = staged}},
          {"hybrid", 4, {.strategy = "hybrid", .options = staged}}};
}

TEST(TrainerModes, AreKeptByEveryStrategy) {
  at::set_num_threads(1);
  const StateDict expected = trained_by_hand();
  for (const ModesWay& way : modes_ways()) {
    for (const bool in_hook : {false, true}) {
      const std::string what = str(way.name, in_hook ? ", in the hook" : ", before fit()");
      StateDict state;
      const auto train_rank = [&](const ProcessGroup& group) {
        at::set_num_threads(1);
        const torch::nn::Sequential net = make_staged_net(kModesNet);
        FreezingTask task(net, in_hook);
        train_staged(modes_run(), group, way.run, task);
        LOCKSTEP_CHECK(task.starts() == 1, "on_train_start() was called ", task.starts(), " times");
        const auto names = names_in_eval_mode(*net);
        LOCKSTEP_CHECK((names == std::vector<std::string>{"4", "6"}),
                       "in eval mode: ", join(names));
        if (group.rank() == 0) state = state_dict(*net);
      };
      if (way.ranks == 1) {
        train_rank(group_of_one());
      } else {
        EXPECT_EQ(run_group(way.ranks, "shm", train_rank), no_errors(way.ranks)) << what;
      }
      SCOPED_TRACE(what);
      expect_close(state, expected);
    }
  }
}

// The stages of this net ask their own mode whether to apply dropout.
TEST(TrainerModes, OfTheWholeModuleAreKeptWithAWarning) {
  const TrainerOptions run = options(1);
  const StateDict expected = train(run, group_of_one(), /*dropout=*/false).state;
  for (const char* strategy : {"single", "pipeline"}) {
    MnistNet net = make_digits_net(/*dropout=*/true);
    net->eval();
    ClassificationTask task(net, ClassificationLoss::kNegativeLogLikelihood, [net](int stages) {
      return pipeline::stage_modules(mnist_stages(net, stages));
    });
    const CapturedLog log;
    train_staged(run, group_of_one(),
                 {.strategy = strategy, .options = {.stages = 4, .micro_batches = 2}}, task);
    EXPECT_THAT(log.lines(), ElementsAre(HasSubstr("the task's module is in evaluation mode")));
    SCOPED_TRACE(strategy);
    expect_close(state_dict(*net), expected);
  }
}

TEST(TrainerPrecision, IsWarnedOfWhereItIsSlow) {
  const std::vector<std::string> slow = slow_precisions();
  for (const Precision precision : {Precision::k32, Precision::kBf16, Precision::kFp16}) {
    TrainerOptions run = options(1);
    run.precision = precision;
    run.max_steps = 1;
    run.limit_val_batches = 0;
    const CapturedLog log;
    EXPECT_EQ(train(run, group_of_one(), /*dropout=*/false).report.info.slow_precisions, slow);
    const std::string text = slow_precision_text(precision, slow);
    if (text.empty()) {
      EXPECT_THAT(log.lines(), IsEmpty()) << to_string(precision);
    } else {
      EXPECT_THAT(log.lines(), ElementsAre(HasSubstr("Trainer: " + text + ": precision " +
                                                     to_string(precision))));
    }
  }
}

TEST(TrainerModes, OfASecondRunAreThoseOfTheFirst) {
  MnistNet net = make_digits_net(/*dropout=*/true);
  ClassificationTask task(net, ClassificationLoss::kNegativeLogLikelihood);
  const CapturedLog log;
  for (int run = 0; run < 2; ++run) {
    train_staged(options(1), group_of_one(), {}, task);
    EXPECT_THAT(names_in_eval_mode(*net), IsEmpty()) << run;
  }
  EXPECT_THAT(log.lines(), IsEmpty());
}

// Pictures are made after the evaluation.
TEST(TrainerModes, OfPicturesAreEval) {
  struct PictureTask final : ClassificationTask {
    explicit PictureTask(const MnistNet& own)
        : ClassificationTask(own, ClassificationLoss::kNegativeLogLikelihood), net(own) {}
    std::optional<RunPicture> picture(const Batch&) override {
      modes.push_back(net->is_training());
      return std::nullopt;
    }
    MnistNet net;
    std::vector<bool> modes;
  };
  struct PictureListener final : Listener {
    bool takes_pictures() const override { return true; }
  };
  PictureTask task(make_digits_net(/*dropout=*/true));
  PictureListener listener;
  TrainerOptions run = options(2);
  run.listeners = {&listener};
  train_staged(run, group_of_one(), {}, task);
  EXPECT_THAT(task.modes, ElementsAre(false, false));
  EXPECT_TRUE(task.net->is_training());
}

// An evaluation and its picture need no gradients, and compute in the precision of the run.
TEST(TrainerModes, OfEvaluationsAndPicturesAreWithoutGradients) {
  struct ObservedTask final : ClassificationTask {
    ObservedTask()
        : ClassificationTask(make_digits_net(/*dropout=*/false),
                             ClassificationLoss::kNegativeLogLikelihood) {}
    torch::Tensor training_step(const Batch& batch) override {
      observe("training");
      return ClassificationTask::training_step(batch);
    }
    void evaluation_step(const Batch& batch, Metrics& metrics) override {
      observe("evaluation");
      ClassificationTask::evaluation_step(batch, metrics);
    }
    std::optional<RunPicture> picture(const Batch&) override {
      observe("picture");
      return std::nullopt;
    }
    void observe(const std::string& what) {
      seen.insert(lockstep::str(what, at::GradMode::is_enabled() ? ", gradients" : "",
                                at::autocast::is_autocast_enabled(at::kCPU) ? ", autocast" : ""));
    }
    std::set<std::string> seen;
  };
  struct PictureListener final : Listener {
    bool takes_pictures() const override { return true; }
  };
  for (const Precision precision : {Precision::k32, Precision::kBf16}) {
    ObservedTask task;
    PictureListener listener;
    TrainerOptions run = options(1);
    run.max_steps = 1;
    run.precision = precision;
    run.listeners = {&listener};
    const CapturedLog log;  // bfloat16 may be slow here
    train_staged(run, group_of_one(), {}, task);
    const std::string after = precision == Precision::k32 ? "" : ", autocast";
    EXPECT_THAT(task.seen, testing::UnorderedElementsAre("training, gradients" + after,
                                                         "evaluation" + after, "picture" + after));
    EXPECT_TRUE(at::GradMode::is_enabled()) << "after the run";
    EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU)) << "after the run";
  }
}

// Each message has the range of its option. Options next to a range are accepted.
TEST(TrainerRanges, AreInTheMessages) {
  const auto refusal = [](const TrainerOptions& o) {
    return testing_support::message_of<ConfigError>(
        [&] { Trainer(o, make_strategy("single", group_of_one())); });
  };
  const CheckpointOptions folder = {.directory = "checkpoints"};
  const std::pair<TrainerOptions, const char*> cases[] = {
      {{.max_epochs = 0}, "Trainer: max_epochs must be from 1 to 1000000000, got 0"},
      {{.max_epochs = 5, .min_epochs = 6}, "Trainer: min_epochs must be from 0 to 5, got 6"},
      {{.max_epochs = 5, .min_epochs = -1}, "Trainer: min_epochs must be from 0 to 5, got -1"},
      {{.max_steps = 0}, "Trainer: max_steps must be at least 1, got 0"},
      {{.max_time_seconds = -1.5}, "Trainer: max_time_seconds must be greater than 0, got -1.5"},
      {{.fast_dev_run = -1}, "Trainer: fast_dev_run must be from 0 to 1000000000, got -1"},
      {{.limit_train_batches = 0}, "Trainer: limit_train_batches must be at least 1, got 0"},
      {{.overfit_batches = -1}, "Trainer: overfit_batches must be at least 0, got -1"},
      {{.accumulate_grad_batches = 0},
       "Trainer: accumulate_grad_batches must be from 1 to 1000000000, got 0"},
      {{.limit_val_batches = -1}, "Trainer: limit_val_batches must be at least 0, got -1"},
      {{.check_val_every_n_epoch = 0},
       "Trainer: check_val_every_n_epoch must be at least 1, got 0"},
      {{.val_check_interval = 0}, "Trainer: val_check_interval must be at least 1, got 0"},
      {{.num_sanity_val_steps = -1}, "Trainer: num_sanity_val_steps must be at least 0, got -1"},
      {{.gradient_clip_norm = 0}, "Trainer: gradient_clip_norm must be greater than 0, got 0"},
      {{.gradient_clip_value = -2}, "Trainer: gradient_clip_value must be greater than 0, got -2"},
      {{.schedule = {.gamma = 0}}, "schedule: gamma must be greater than 0, got 0"},
      {{.ema_decay = 1.25}, "Trainer: ema_decay must be from 0 to 1, got 1.25"},
      {{.ema_decay = -0.25}, "Trainer: ema_decay must be from 0 to 1, got -0.25"},
      {{.checkpoints = {.keep_last = 0}},
       "checkpoints: keep_last must be from 1 to 1000000, got 0"},
      {{.log_every_n_steps = 0}, "Trainer: log_every_n_steps must be at least 1, got 0"},
      {{.model_summary_depth = -2}, "Trainer: model_summary_depth must be at least -1, got -2"},
      {{.log_histograms_every_n_steps = -1},
       "Trainer: log_histograms_every_n_steps must be at least 0, got -1"},
      {{.profiler = {.kind = Profiler::kTrace}},
       "profiler: a trace needs trace_file, where it is written to"},
      {{.trace = {.steps = 0}}, "Trainer: trace.steps must be from 1 to 100, got 0"},
      {{.deterministic = true, .cudnn_benchmark = true},
       "Trainer: cudnn_benchmark and deterministic cannot be combined: what is fastest differs "
       "from run to run; remove one of them"},
      {{.detect_anomaly = true, .cuda_graph = true},
       "Trainer: cuda_graph and detect_anomaly cannot be combined: a replayed backward pass does "
       "not check values for NaN; remove one of them"},
      {{.on_nan = OnNan::kSkip, .cuda_graph = true},
       "Trainer: cuda_graph and on_nan skip cannot be combined: a replayed step updates the "
       "parameters before the host knows its loss; choose one"},
      {{.on_nan = OnNan::kStop, .cuda_graph = true},
       "Trainer: cuda_graph and on_nan stop cannot be combined: a replayed step updates the "
       "parameters before the host knows its loss; choose one"},
      {{.schedule = {.kind = ScheduleKind::kOneCycle, .cycle_momentum = true}, .cuda_graph = true},
       "Trainer: cuda_graph and cycle_momentum cannot be combined: the momentum of a replayed step "
       "is that of the recorded one; remove one of them"},
      {{.checkpoints = folder, .resume = Resume::kYes, .overwrite = true},
       "Trainer: resume and overwrite cannot be combined; remove one of them"},
      {{.fast_dev_run = 1, .checkpoints = folder, .resume = Resume::kYes},
       "Trainer: resume cannot be combined with fast_dev_run, which keeps no checkpoints; remove "
       "one of them"},
      {{.resume = Resume::kYes},
       "Trainer: resume needs a folder of checkpoints; set CheckpointOptions::directory"},
      {{.deterministic = true}, "nothing was thrown"},
      {{.cudnn_benchmark = true}, "nothing was thrown"},
      {{.checkpoints = folder, .overwrite = true}, "nothing was thrown"},
      {{.checkpoints = folder, .resume = Resume::kYes}, "nothing was thrown"},
      {{.fast_dev_run = 1, .checkpoints = folder, .overwrite = true}, "nothing was thrown"},
  };
  for (const auto& [wrong, message] : cases) EXPECT_EQ(refusal(wrong), message);
}

// The first eight samples of the first batch, or as many as it has.
TEST(TrainerPictures, ShowTheFirstSamples) {
  struct PictureTask final : ClassificationTask {
    PictureTask()
        : ClassificationTask(make_digits_net(/*dropout=*/false),
                             ClassificationLoss::kNegativeLogLikelihood) {}
    std::optional<RunPicture> picture(const Batch& samples) override {
      shown = samples;
      return std::nullopt;
    }
    Batch shown;
  };
  struct PictureListener final : Listener {
    bool takes_pictures() const override { return true; }
  };
  for (const std::int64_t batch_size : {3, 20}) {
    PictureTask task;
    PictureListener listener;
    TrainerOptions run = options(1);
    run.listeners = {&listener};
    const auto make_loader = [&] {
      return std::make_unique<Loader>(test_images(), EvaluationSampler(test_images().size(), 0, 1),
                                      kNormalize, LoaderOptions{.batch_size = batch_size});
    };
    Loader loader = train_loader(group_of_one());
    Trainer(run, make_strategy("single", group_of_one())).fit(task, loader, make_loader);
    const std::int64_t count = std::min<std::int64_t>(batch_size, 8);
    Batch first;
    const auto images = make_loader();
    images->set_epoch(0);
    ASSERT_TRUE(images->next(first));
    EXPECT_EQ(task.shown.size, count);
    EXPECT_TRUE(task.shown.images.equal(first.images.narrow(0, 0, count))) << batch_size;
    EXPECT_TRUE(task.shown.labels.equal(first.labels.narrow(0, 0, count))) << batch_size;
  }
}

// One picture after each evaluation at the end of an epoch, on rank 0, if a listener takes it.
TEST(TrainerPictures, ReachTheListenersOfRankZeroThatTakeThem) {
  struct PictureTask final : ClassificationTask {
    PictureTask()
        : ClassificationTask(make_digits_net(/*dropout=*/false),
                             ClassificationLoss::kNegativeLogLikelihood) {}
    std::optional<RunPicture> picture(const Batch&) override {
      ++made;
      return RunPicture{.name = "digits", .width = 1, .height = 2, .rgb = {1, 2, 3, 4, 5, 6}};
    }
    int made = 0;
  };
  struct PictureListener final : Listener {
    explicit PictureListener(bool given) : takes(given) {}
    bool takes_pictures() const override { return takes; }
    void on_picture(const PictureReport& report) override {
      events += 'p';
      reports.push_back(report);
    }
    void on_epoch_end(const EpochReport&) override { events += 'e'; }
    const bool takes;
    std::string events;
    std::vector<PictureReport> reports;
  };
  for (const bool takes : {true, false}) {
    PictureTask task;
    PictureListener listener(takes);
    TrainerOptions run = options(3);
    run.check_val_every_n_epoch = 2;
    run.listeners = {&listener};
    train_staged(run, group_of_one(), {}, task);
    EXPECT_EQ(listener.events, takes ? "epepe" : "eee") << "after the evaluations of two epochs";
    EXPECT_EQ(task.made, takes ? 2 : 0);
    if (!takes) continue;
    ASSERT_EQ(listener.reports.size(), 2U);
    EXPECT_EQ(listener.reports[0].epoch, 2);
    EXPECT_EQ(listener.reports[1].epoch, 3);
    EXPECT_EQ(listener.reports[1].steps_per_epoch, 6);
    EXPECT_EQ(listener.reports[1].picture.name, "digits");
    EXPECT_THAT(listener.reports[1].picture.rgb, ElementsAre(1, 2, 3, 4, 5, 6));
  }
  std::vector<int> made(2);
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    at::set_num_threads(1);
    PictureTask task;
    PictureListener listener(true);
    TrainerOptions run = options(1);
    run.listeners = {&listener};
    train_staged(run, group, {.strategy = "ddp"}, task);
    made[static_cast<std::size_t>(group.rank())] = task.made;
  });
  EXPECT_EQ(errors, no_errors(2));
  EXPECT_THAT(made, ElementsAre(1, 0));
}

}  // namespace
}  // namespace lockstep::train
