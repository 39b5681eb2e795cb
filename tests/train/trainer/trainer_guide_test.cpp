// The code of docs/training_loop.md that is not in its example: a hand-written step of several
// batches, and the Trainer with every strategy.
#include <cmath>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <lockstep/core/error.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/parallel/distributed_data_parallel.h>
#include <lockstep/parallel/pipeline/balance.h>
#include <lockstep/train/strategies/strategy.h>
#include <lockstep/train/task/standard_metrics.h>
#include <lockstep/train/trainer.h>
#include <tests/support/temporary_directory.h>
#include <tests/train/trainer/trainer_runs.h>

namespace lockstep::train {
namespace {

using torch::nn::functional::cross_entropy;

struct GuidePart {
  torch::Tensor x, y;
};

torch::nn::Linear guide_layer() {
  torch::nn::Linear layer(4, 3);
  const torch::NoGradGuard no_grad;
  layer->weight.copy_(torch::arange(12).mul(0.3).sin().view({3, 4}));
  layer->bias.zero_();
  return layer;
}

TEST(TrainerGuide, AStepOfSeveralBatchesIsThatOfOne) {
  const torch::Tensor x = torch::arange(48).mul(0.7).cos().view({12, 4});
  const torch::Tensor y = torch::arange(12).remainder(3);
  torch::nn::Linear alone = guide_layer();
  cross_entropy(alone->forward(x), y).backward();

  const auto errors = testing_support::run_group(2, "shm", [&](ProcessGroup group) {
    at::set_num_threads(1);
    std::vector<GuidePart> parts;  // this rank's half in three parts
    for (std::int64_t i = 0; i < 3; ++i) {
      const std::int64_t first = 6 * group.rank() + 2 * i;
      parts.push_back({x.narrow(0, first, 2), y.narrow(0, first, 2)});
    }
    torch::nn::Linear net = guide_layer();
    lockstep::DistributedDataParallel ddp(net, group);
    lockstep::Optimizer optimizer(*net, lockstep::SgdOptions{.lr = 0.1});

    optimizer.zero_grad();
    for (std::size_t i = 0; i < parts.size(); ++i) {
      std::optional<lockstep::DdpCore::NoSync> no_sync;
      if (i + 1 < parts.size()) no_sync.emplace(ddp.core());  // gradients stay on this rank
      const auto loss = cross_entropy(ddp.forward(parts[i].x), parts[i].y);
      (loss / static_cast<double>(parts.size())).backward();  // the last backward averages
    }
    if (!net->weight.grad().allclose(alone->weight.grad(), 1e-4, 1e-6)) throw Error("differs");
    optimizer.step();
  });
  EXPECT_EQ(errors, testing_support::no_errors(2));
}

torch::nn::Sequential guide_net() {
  namespace nn = torch::nn;
  nn::Sequential net(nn::Flatten(), nn::Linear(28 * 28, 24), nn::Tanh(), nn::Linear(24, 16),
                     nn::Tanh(), nn::Linear(16, 10));
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& parameter : net->parameters()) {
    parameter.copy_(torch::arange(parameter.numel()).mul(0.7).sin().mul(0.05).view_as(parameter));
  }
  return net;
}

lockstep::RunReport train_by(const std::string& name, lockstep::ProcessGroup group,
                             const lockstep::StrategyOptions& strategy_options) {
  const lockstep::ImageDataset& images = train_images();
  const lockstep::Augmentation& list = kNormalize;
  const std::int64_t global_batch = 22;
  at::set_num_threads(1);

  torch::nn::Sequential net = guide_net();
  const auto cut = [net](int stages) {
    if (stages != 2) throw lockstep::ConfigError("the net is cut into two stages");
    return lockstep::pipeline::stage_modules(lockstep::split(net, {3, 3}));
  };
  lockstep::ClassificationTask task(net, lockstep::ClassificationLoss::kCrossEntropy, cut);

  auto strategy = lockstep::make_strategy(name, group, strategy_options);
  const lockstep::DataShare share = strategy->data_share();
  lockstep::Loader loader(
      images,
      lockstep::DistributedSampler(images.size(), {.rank = share.rank, .world_size = share.size}),
      list, {.batch_size = global_batch / share.size});
  lockstep::Trainer trainer({.max_epochs = 2,
                             .accumulate_grad_batches = 2,
                             .optimizer = lockstep::SgdOptions{.lr = 0.05}},
                            std::move(strategy));
  return trainer.fit(task, loader);
}

struct Autoencoder : lockstep::Task {
  torch::nn::Sequential net{torch::nn::Flatten(), torch::nn::Linear(28 * 28, 16), torch::nn::Tanh(),
                            torch::nn::Linear(16, 28 * 28)};
  std::shared_ptr<lockstep::Psnr> psnr = std::make_shared<lockstep::Psnr>(/*data_range=*/3.2);

  torch::nn::Module& module() override { return *net; }
  torch::Tensor training_step(const lockstep::Batch& batch) override {
    return torch::mse_loss(net->forward(batch.images), batch.images.flatten(1));
  }
  void evaluation_step(const lockstep::Batch& batch, lockstep::Metrics& metrics) override {
    const torch::Tensor output = net->forward(batch.images);
    const torch::Tensor images = batch.images.flatten(1);
    metrics.add("loss", torch::mse_loss(output, images), batch.size);
    metrics.add("absolute_error", (output - images).abs().mean(), batch.size);
    metrics.update(output, images);
  }
  std::vector<lockstep::MetricPtr> metrics() override { return {psnr}; }
};

TEST(TrainerGuide, ATaskHasItsOwnMetricsOnAllRanks) {
  const auto train_autoencoder = [](const ProcessGroup& group) {
    at::set_num_threads(1);
    Autoencoder task;
    {
      const torch::NoGradGuard no_grad;
      for (torch::Tensor& parameter : task.net->parameters()) {
        parameter.copy_(
            torch::arange(parameter.numel()).mul(0.7).sin().mul(0.05).view_as(parameter));
      }
    }
    lockstep::TrainerOptions options{.max_epochs = 3};
    options.min_epochs = 2;
    options.early_stopping = lockstep::EarlyStoppingOptions{
        .monitor = "psnr", .mode = lockstep::MetricGoal::kMax, .patience = 2};
    options.limit_train_batches = 4;
    options.gradient_clip_norm = 1.0;
    options.schedule = {.kind = lockstep::ScheduleKind::kOneCycle};
    options.ema_decay = 0.9;
    options.optimizer = SgdOptions{.lr = 0.5};
    Loader loader = train_loader(group);
    lockstep::Trainer trainer(options, make_strategy(group.size() == 1 ? "single" : "ddp", group));
    const RunReport report = trainer.fit(task, loader, [&] { return test_loader(group); });
    const lockstep::StateDict averaged = trainer.averaged_state();
    LOCKSTEP_CHECK(averaged.size() == 4, averaged.size(), " tensors");
    return report;
  };
  const RunReport alone = train_autoencoder(group_of_one());
  const Evaluation& test = *alone.test;
  ASSERT_EQ(test.values.size(), 2U);
  EXPECT_EQ(test.values[0].name, "absolute_error");
  // Each batch's mean is weighted by its samples, so that the loss is the mean over all elements,
  // as in psnr.
  EXPECT_NEAR(*test.value_of("psnr"), 10 * std::log10(3.2 * 3.2 / test.loss), 1e-4);
  EXPECT_GT(*test.value_of("psnr"), *alone.epochs[0].test->value_of("psnr"));
  std::vector<RunReport> reports(2);
  const auto errors = testing_support::run_group(2, "shm", [&](const ProcessGroup& group) {
    reports[static_cast<std::size_t>(group.rank())] = train_autoencoder(group);
  });
  ASSERT_EQ(errors, testing_support::no_errors(2));
  for (const RunReport& report : reports) {
    EXPECT_NEAR(report.test->loss, test.loss, 1e-5);
    for (const char* name : {"absolute_error", "psnr"}) {
      EXPECT_NEAR(*report.test->value_of(name), *test.value_of(name), 1e-3) << name;
    }
  }
}

TEST(TrainerGuide, AHandlerStopsARun) {
  const testing_support::TemporaryDirectory directory_of_test;
  const std::filesystem::path directory = directory_of_test / "checkpoints";
  struct sigaction before = {};
  sigaction(SIGTERM, nullptr, &before);
  torch::nn::Sequential net = guide_net();
  lockstep::ClassificationTask task(net, lockstep::ClassificationLoss::kCrossEntropy);
  Loader loader = train_loader(group_of_one());
  lockstep::TrainerOptions options{.max_epochs = 2};

  static lockstep::StopRequest stop;
  std::signal(SIGTERM, [](int signal) { stop.request(signal); });
  options.stop_request = &stop;
  options.checkpoints.directory = directory;
  options.resume = lockstep::Resume::kAuto;

  std::raise(SIGTERM);
  sigaction(SIGTERM, &before, nullptr);
  lockstep::Trainer trainer(options, make_strategy("single", group_of_one()));
  testing::internal::CaptureStderr();
  const lockstep::RunReport report = trainer.fit(task, loader);
  if (report.interrupted) std::cerr << "saved in " << report.saved_in << std::endl;
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "saved in " + (directory / "step-00000001").string() + "\n");
  EXPECT_EQ(report.stop_signal, SIGTERM);
}

double last_loss(const RunReport& report) { return report.epochs.back().train_loss; }

TEST(TrainerGuide, EveryStrategyTrainsAsOneProcess) {
  const RunReport single = train_by("single", group_of_one(), {});
  EXPECT_EQ(single.info.accumulate_grad_batches, 2);
  const double expected = last_loss(single);
  StrategyOptions replicas;
  replicas.devices = {torch::kCPU, torch::kCPU};
  replicas.dp_loss = lockstep::DpLoss::kOnEach;
  EXPECT_NEAR(last_loss(train_by("dp", group_of_one(), replicas)), expected, 1e-4);
  StrategyOptions stages;
  stages.stages = 2;
  stages.micro_batches = 4;
  stages.schedule = lockstep::Schedule::kZbH1;
  EXPECT_NEAR(last_loss(train_by("pipeline", group_of_one(), stages)), expected, 1e-4);

  struct OnRanks {
    const char* name;
    int ranks;
    bool shard_optimizer = false;
  };
  for (const OnRanks& each : {OnRanks{"ddp", 2}, OnRanks{"zero1", 2}, OnRanks{"pipeline", 2},
                              OnRanks{"hybrid", 4}, OnRanks{"hybrid", 4, true}}) {
    stages.shard_optimizer = each.shard_optimizer;
    double loss = 0;
    const auto errors =
        testing_support::run_group(each.ranks, "shm", [&](const ProcessGroup& group) {
          const RunReport report = train_by(each.name, group, stages);
          if (group.rank() == 0) loss = last_loss(report);
        });
    EXPECT_EQ(errors, testing_support::no_errors(each.ranks)) << each.name;
    EXPECT_NEAR(loss, expected, 1e-4) << each.name << ' ' << each.shard_optimizer;
  }
}

}  // namespace
}  // namespace lockstep::train
