// The moving average of the weights in Trainer runs. golden_training_test.cpp tests its arithmetic.
#include <lockstep/train/checkpoints/model_ema.h>

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>
#include <tests/train/staged_net.h>
#include <tests/train/trainer/trainer_runs.h>

namespace lockstep::train {
namespace {

using testing_support::TemporaryDirectory;

TrainerOptions averaging(std::int64_t epochs, double decay = 0.8) {
  TrainerOptions run = options(epochs);
  run.ema_decay = decay;
  return run;
}

Evaluation judge_alone(const StateDict& state) {
  MnistNet net;
  load_state_dict(*net, state);
  net->eval();
  ClassificationTask task(net, ClassificationLoss::kNegativeLogLikelihood);
  const torch::NoGradGuard no_grad;
  Metrics metrics;
  const auto images = test_loader(group_of_one());
  for (const Batch& batch : *images) task.evaluation_step(batch, metrics);
  return metrics.mean();
}

TEST(TrainerEma, EvaluatesTheAverageAndTrainsAsWithoutIt) {
  const Outcome plain = train(options(2));
  const Outcome outcome = train(averaging(2));
  expect_equal_bits(outcome.state, plain.state);
  EXPECT_TRUE(plain.averaged.empty());
  EXPECT_GT(distance(outcome.averaged, outcome.state), 1e-3);
  EXPECT_NE(outcome.report.test->loss, plain.report.test->loss);
  EXPECT_NEAR(outcome.report.test->loss, judge_alone(outcome.averaged).loss, 1e-6);
}

TEST(TrainerEma, OfDecayOneKeepsTheFirstStep) {
  TrainerOptions first = options(1);
  first.max_steps = 1;
  expect_equal_bits(train(averaging(1, 1.0)).averaged, train(first).state);
}

TEST(TrainerEma, IsTheSameWithEveryStrategyThatHasTheWholeModel) {
  const TrainerOptions run = averaging(2);
  const Outcome single = train(run, group_of_one(), /*dropout=*/false);
  const auto expect_like_single = [&](const Outcome& outcome, const std::string& name) {
    expect_close(outcome.averaged, single.averaged);
    EXPECT_NEAR(outcome.report.test->loss, judge_alone(outcome.averaged).loss, 1e-5) << name;
    EXPECT_GT(distance(outcome.averaged, outcome.state), 1e-3) << name;
  };
  const Outcome ddp = train_ranks(2, "shm", "ddp", run);
  expect_like_single(ddp, "ddp");
  // With shared memory, the ranks share one copy of the parameters.
  for (const char* backend : {"shm", "gloo"}) {
    const Outcome zero = train_ranks(2, backend, "zero1", run);
    expect_equal_bits(zero.averaged, ddp.averaged);
    expect_equal_bits(zero.state, ddp.state);
    EXPECT_EQ(zero.report.test->loss, ddp.report.test->loss) << backend;
  }
  const torch::Device cpu = torch::kCPU;
  expect_like_single(train(run, group_of_one(), false, "dp", kGlobalBatch, {.devices = {cpu, cpu}}),
                     "dp");
}

// Ranks have different running statistics, and all evaluate with the averages of rank 0's.
TEST(TrainerEma, AveragesTheStatisticsOfBatchNormalisation) {
  const StagedNetOptions with_norm{.norm = true};
  for (const int ranks : {1, 2}) {
    RunReport report;
    StateDict averaged;
    torch::Tensor last_mean;
    const auto train_rank = [&](const ProcessGroup& group) {
      at::set_num_threads(1);
      const torch::nn::Sequential net = make_staged_net(with_norm);
      ClassificationTask task = make_staged_task(net, with_norm);
      Loader loader = train_loader(group);
      Trainer trainer(averaging(2), make_strategy(ranks == 1 ? "single" : "ddp", group));
      const RunReport own = trainer.fit(task, loader, [&] { return test_loader(group); });
      if (group.rank() != 0) return;
      report = own;
      averaged = trainer.averaged_state();
      last_mean = net->named_buffers()["4.running_mean"].clone();
    };
    if (ranks == 1) {
      train_rank(group_of_one());
    } else {
      EXPECT_EQ(testing_support::run_group(ranks, "shm", train_rank),
                testing_support::no_errors(ranks));
    }
    torch::nn::Sequential net = make_staged_net(with_norm);
    load_state_dict(*net, averaged);
    EXPECT_GT((net->named_buffers()["4.running_mean"] - last_mean).abs().max().item<double>(), 1e-3)
        << "the average is not the last value";
    net->eval();
    ClassificationTask task = make_staged_task(net, with_norm);
    const torch::NoGradGuard no_grad;
    Metrics metrics;
    const auto images = test_loader(group_of_one());
    for (const Batch& batch : *images) task.evaluation_step(batch, metrics);
    EXPECT_NEAR(report.test->loss, metrics.mean().loss, 1e-5) << ranks << " ranks";
  }
}

// Each rank averages its own statistics, and no evaluation replaces them here.
TEST(TrainerEma, HasTheSameAveragesOnAllRanks) {
  const StagedNetOptions with_norm{.norm = true};
  std::vector<StateDict> averaged(2);
  const auto errors = testing_support::run_group(2, "shm", [&](ProcessGroup group) {
    at::set_num_threads(1);
    ClassificationTask task = make_staged_task(make_staged_net(with_norm), with_norm);
    Loader loader = train_loader(group);
    Trainer trainer(averaging(1), make_strategy("ddp", group));
    trainer.fit(task, loader);
    averaged[static_cast<std::size_t>(group.rank())] = trainer.averaged_state();
  });
  ASSERT_EQ(errors, testing_support::no_errors(2));
  EXPECT_FALSE(averaged[0].empty());
  expect_equal_bits(averaged[1], averaged[0]);
}

// A picture shows what the evaluation judges.
TEST(TrainerEma, IsWhatPicturesShow) {
  struct PictureTask final : ClassificationTask {
    explicit PictureTask(const MnistNet& own)
        : ClassificationTask(own, ClassificationLoss::kNegativeLogLikelihood), net(own) {}
    std::optional<RunPicture> picture(const Batch& samples) override {
      shown = net->forward(samples.images);
      images = samples.images;
      return RunPicture{.name = "outputs", .width = 1, .height = 1, .rgb = {1, 2, 3}};
    }
    MnistNet net;
    torch::Tensor shown, images;
  };
  struct PictureListener final : Listener {
    bool takes_pictures() const override { return true; }
    void on_picture(const PictureReport& report) override { epochs.push_back(report.epoch); }
    std::vector<std::int64_t> epochs;
  };
  PictureTask task(make_digits_net(/*dropout=*/true));
  PictureListener listener;
  TrainerOptions run = averaging(2);
  run.listeners = {&listener};
  Loader loader = train_loader(group_of_one());
  Trainer trainer(run, make_strategy("single", group_of_one()));
  trainer.fit(task, loader, [] { return test_loader(group_of_one()); });
  EXPECT_THAT(listener.epochs, testing::ElementsAre(1, 2));
  ASSERT_EQ(task.images.size(0), 8);
  const auto batches = test_loader(group_of_one());
  EXPECT_TRUE(task.images.equal((*batches->begin()).images)) << "the first test images";
  MnistNet averaged;
  load_state_dict(*averaged, trainer.averaged_state());
  averaged->eval();
  const torch::NoGradGuard no_grad;
  EXPECT_TRUE(task.shown.allclose(averaged->forward(task.images), 1e-6, 1e-6));
  task.net->eval();
  EXPECT_FALSE(task.shown.allclose(task.net->forward(task.images), 1e-3, 1e-3));
}

// The averages are those of the last run, which this one has not become.
TEST(TrainerEma, HasNoAveragesAfterARunThatFailed) {
  ClassificationTask task(make_digits_net(/*dropout=*/false),
                          ClassificationLoss::kNegativeLogLikelihood);
  Loader loader = train_loader(group_of_one());
  Trainer trainer(averaging(1), make_strategy("single", group_of_one()));
  trainer.fit(task, loader, Trainer::LoaderFactory());
  EXPECT_FALSE(trainer.averaged_state().empty());
  const Trainer::LoaderFactory broken = []() -> std::shared_ptr<Loader> {
    throw DataError("no test images");
  };
  EXPECT_THROW(trainer.fit(task, loader, broken), DataError);
  EXPECT_TRUE(trainer.averaged_state().empty());
}

TEST(TrainerEma, WorksWithAPipelineOfThreads) {
  const StagedRun pipeline{.strategy = "pipeline", .options = {.stages = 2, .micro_batches = 2}};
  const TrainerOptions run = averaging(2);
  const RunReport staged = train_staged(run, group_of_one(), pipeline);
  const RunReport single = train_staged(run, group_of_one(), {});
  EXPECT_NEAR(staged.test->loss, single.test->loss, 1e-5);
  EXPECT_GT(std::abs(train_staged(options(2), group_of_one(), {}).test->loss - single.test->loss),
            1e-4);
}

TEST(TrainerEma, IsRefusedWhereNoRankHasTheWholeModel) {
  const auto errors = testing_support::run_group(2, "shm", [](ProcessGroup group) {
    at::set_num_threads(1);
    train_staged(averaging(1), group,
                 {.strategy = "pipeline", .options = {.stages = 2, .micro_batches = 2}});
  });
  for (const auto& error : errors) {
    EXPECT_THAT(error, ::testing::StartsWith("Trainer: ema_decay averages the whole model on each "
                                             "rank, but strategy pipeline divides it"));
  }
}

TEST(TrainerEma, GoesOnExactly) {
  const auto expect_exact = [](const char* name, const auto& train_it) {
    const TemporaryDirectory directory;
    TrainerOptions run = averaging(2);
    const Outcome whole = train_it(run);
    run.checkpoints.directory = directory / "checkpoints";
    run.max_steps = 8;
    train_it(run);
    run.max_steps.reset();
    run.resume = true;
    const Outcome resumed = train_it(run);
    SCOPED_TRACE(name);
    expect_equal_bits(resumed.averaged, whole.averaged);
    expect_equal_bits(resumed.state, whole.state);
    EXPECT_EQ(resumed.report.test->loss, whole.report.test->loss);
  };
  expect_exact("single", [](const TrainerOptions& run) { return train(run); });
  expect_exact("zero1",
               [](const TrainerOptions& run) { return train_ranks(2, "shm", "zero1", run); });
}

TEST(TrainerEma, BeginsWhereACheckpointHasNone) {
  const TemporaryDirectory directory;
  TrainerOptions first = options(2);
  first.checkpoints.directory = directory / "checkpoints";
  first.max_steps = 6;
  train(first);
  TrainerOptions second = averaging(2, 1.0);  // a decay of 1 keeps the first values
  second.checkpoints.directory = first.checkpoints.directory;
  second.resume = true;
  const StateDict averaged = train(second).averaged;
  TrainerOptions seventh = options(2);
  seventh.max_steps = 7;
  expect_equal_bits(averaged, train(seventh).state);
  // The reverse: a run without an average resumes from a checkpoint with one.
  TrainerOptions third = options(3);
  third.checkpoints.directory = first.checkpoints.directory;
  third.resume = true;
  EXPECT_TRUE(train(third).averaged.empty());
}

TEST(ModelEma, AveragesComplexParametersToo) {
  const auto numbers = [](double phase, torch::ScalarType type) {
    const auto angles = torch::arange(5, torch::kFloat64) + phase;
    return c10::isComplexType(type) ? torch::complex(angles.sin(), angles.cos()).to(type)
                                    : angles.sin().to(type);
  };
  constexpr torch::ScalarType kTypes[] = {torch::kFloat32, torch::kComplexFloat,
                                          torch::kComplexDouble};
  torch::nn::Module module;
  std::vector<torch::Tensor> parameters, expected;
  for (const auto type : kTypes) {
    parameters.push_back(module.register_parameter(c10::toString(type), numbers(0, type)));
  }
  ModelEma ema(module, 0.75);
  for (int update = 0; update < 4; ++update) {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      parameters[i].copy_(numbers(update + 1, kTypes[i]));
      const auto value = parameters[i].detach().clone();
      if (update == 0) expected.push_back(value);
      expected[i] = expected[i] * 0.75 + value * 0.25;
    }
    ema.update();
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_TRUE(torch::allclose(ema.state()[i].second, expected[i], 1e-5, 1e-6)) << kTypes[i];
  }
}

TEST(ModelEma, CopiesWhatHasNoMeanAndAveragesTiedWeightsOnce) {
  torch::nn::Module module;
  const torch::Tensor count = module.register_parameter("count", torch::zeros({}, torch::kInt64),
                                                        /*requires_grad=*/false);
  const torch::Tensor weight = module.register_parameter("weight", torch::zeros({2}));
  module.register_parameter("tied", weight);
  ModelEma ema(module, 0.5);
  const torch::NoGradGuard no_grad;
  for (int update = 1; update <= 3; ++update) {
    count.fill_(update);
    weight.fill_(update);
    ema.update();
  }
  const StateDict state = ema.state();
  ASSERT_EQ(state.size(), 2U);
  EXPECT_EQ(state[0].first, "ema.count");
  EXPECT_EQ(state[0].second.item<int>(), 3);
  EXPECT_EQ(state[1].first, "ema.weight");
  const torch::Tensor average = torch::full({2}, ((1 + 2) / 2.0 + 3) / 2.0);
  EXPECT_TRUE(state[1].second.equal(average)) << state[1].second;
  {
    const AveragedWeights averaged(&ema);
    EXPECT_TRUE(weight.equal(average));
    EXPECT_TRUE(module.named_parameters()["tied"].equal(average));
  }
  EXPECT_TRUE(weight.equal(torch::full({2}, 3.0)));
}

// As torch.optim.swa_utils.AveragedModel does with use_buffers, but for running statistics only: a
// mask of infinities would become NaN.
TEST(ModelEma, AveragesRunningStatisticsAndNoOtherBuffers) {
  torch::nn::Module module;
  torch::nn::BatchNorm1d norm(3);
  module.register_module("norm", norm);
  const torch::Tensor mask = module.register_buffer("mask", torch::full({2}, -INFINITY));
  ModelEma ema(module, 0.75);
  torch::Tensor mean, variance;
  for (int step = 0; step < 4; ++step) {
    norm->forward(torch::arange(12, torch::kFloat32).add(5 * step).sin().view({4, 3}) + step);
    if (step == 0) mean = norm->running_mean.clone(), variance = norm->running_var.clone();
    mean = mean * 0.75 + norm->running_mean * 0.25;
    variance = variance * 0.75 + norm->running_var * 0.25;
    ema.update();
  }
  std::map<std::string, torch::Tensor> state;
  for (const auto& [name, tensor] : ema.state()) state[name] = tensor;
  EXPECT_EQ(state.size(), 4U) << "weight, bias and two statistics";
  EXPECT_TRUE(torch::allclose(state.at("ema.norm.running_mean"), mean, 1e-5, 1e-6));
  EXPECT_TRUE(torch::allclose(state.at("ema.norm.running_var"), variance, 1e-5, 1e-6));
  const torch::Tensor last = norm->running_mean.clone();
  {
    const AveragedWeights averaged(&ema);
    EXPECT_TRUE(torch::allclose(norm->running_mean, mean, 1e-5, 1e-6));
    EXPECT_FALSE(torch::allclose(norm->running_mean, last, 1e-3, 1e-3));
    norm->running_mean.zero_();  // as a broadcast from another rank writes it
  }
  EXPECT_TRUE(norm->running_mean.equal(last));
  EXPECT_TRUE(ema.state().at(2).second.equal(torch::zeros({3})));
  EXPECT_TRUE(mask.isinf().all().item<bool>());
  EXPECT_EQ(norm->num_batches_tracked.item<int>(), 4);
}

TEST(ModelEma, LeavesTheWeightsAloneUntilItsFirstUpdate) {
  torch::nn::Module module;
  const torch::Tensor weight = module.register_parameter("weight", torch::zeros({2}));
  ModelEma ema(module, 0.5);
  const torch::NoGradGuard no_grad;
  weight.fill_(7);
  const AveragedWeights averaged(&ema);
  EXPECT_TRUE(weight.equal(torch::full({2}, 7.0)));
}

// A parameter of one element would be broadcast to the average, without a word.
TEST(ModelEma, RefusesAParameterThatChanged) {
  const std::pair<torch::Tensor, const char*> changes[] = {
      {torch::ones({2}, torch::kFloat64), "Double [2] on cpu"},
      {torch::ones({1}), "Float [1] on cpu"},
      {torch::ones({5, 2}), "Float [5, 2] on cpu"}};
  for (const auto& [changed, kind] : changes) {
    torch::nn::Module module;
    torch::Tensor weight = module.register_parameter("weight", torch::zeros({2}));
    ModelEma ema(module, 0.5);
    ema.update();
    const torch::Tensor own = weight.detach();
    weight.set_data(changed);
    const std::string expected = lockstep::str(
        "ModelEma: parameter 'weight' was Float [2] on cpu when the average was constructed and is "
        "now ",
        kind, "; construct it after changing the module");
    EXPECT_EQ(testing_support::message_of<ConfigError>([&] { ema.update(); }), expected);
    EXPECT_EQ(testing_support::message_of<ConfigError>([&] { const AveragedWeights all(&ema); }),
              expected);
    EXPECT_TRUE(weight.equal(changed)) << "left as it was";
    EXPECT_TRUE(ema.state()[0].second.equal(torch::zeros({2})));
    weight.set_data(own + 1);
    ema.update();
    EXPECT_TRUE(ema.state()[0].second.equal(torch::full({2}, 0.5)));
  }
}

TEST(TrainerEma, RefusesADecayThatIsNone) {
  for (const double decay : {-0.1, 1.1}) {
    EXPECT_THROW(Trainer({.ema_decay = decay}, make_strategy("single", group_of_one())),
                 ConfigError);
  }
}

}  // namespace
}  // namespace lockstep::train
