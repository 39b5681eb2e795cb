// Two optimizers that take turns, compared with a loop over torch::optim by hand.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adam.h>

#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>
#include <tests/train/tasks/task_runs.h>

namespace lockstep::train {
namespace {

using testing_support::message_of;

constexpr std::int64_t kPoints = 64;
constexpr std::int64_t kPointBatch = 16;  // four batches in an epoch
constexpr std::size_t kCritic = 0;
constexpr std::size_t kGenerator = 1;

struct Points {
  torch::Tensor real, noise;
};

std::shared_ptr<const RowsOf<Points>> points() {
  static const auto rows = [] {
    torch::manual_seed(6);
    return std::make_shared<const RowsOf<Points>>(
        Points{.real = torch::randn({kPoints, 2}) + 1, .noise = torch::randn({kPoints, 3})},
        kPoints);
  }();
  return rows;
}

struct GanNetsImpl : torch::nn::Module {
  torch::nn::Sequential generator;
  torch::nn::Sequential critic;

  explicit GanNetsImpl(bool normalizes = false)
      : generator(torch::nn::Linear(3, 8)),
        critic(torch::nn::Linear(2, 8), torch::nn::Tanh(), torch::nn::Linear(8, 1)) {
    if (normalizes) generator->push_back(torch::nn::BatchNorm1d(8));
    generator->push_back(torch::nn::Tanh());
    generator->push_back(torch::nn::Linear(8, 2));
    register_module("generator", generator);
    register_module("critic", critic);
    set_fixed_weights(*this);
  }
  torch::Tensor critic_loss(const Points& batch) {
    const torch::Tensor fake = generator->forward(batch.noise).detach();
    return torch::softplus(-critic->forward(batch.real)).mean() +
           torch::softplus(critic->forward(fake)).mean();
  }
  torch::Tensor generator_loss(const Points& batch) {
    return torch::softplus(-critic->forward(generator->forward(batch.noise))).mean();
  }
};
TORCH_MODULE(GanNets);

class GanTask final : public BatchTask<Points> {
 public:
  explicit GanTask(bool normalizes) : nets(normalizes) {}
  GanNets nets;
  bool one_optimizer = false;
  std::string turns;

  torch::nn::Module& module() override { return *nets; }
  torch::Tensor training_step(const Points& batch) override {
    const bool trains_critic = optimizer_index() == kCritic;
    turns += trains_critic ? 'c' : 'g';
    for (const torch::Tensor& parameter : nets->critic->parameters()) {
      EXPECT_EQ(parameter.requires_grad(), trains_critic || one_optimizer);
    }
    for (const torch::Tensor& parameter : nets->generator->parameters()) {
      EXPECT_EQ(parameter.requires_grad(), !trains_critic || one_optimizer);
    }
    return trains_critic ? nets->critic_loss(batch) : nets->generator_loss(batch);
  }
  void evaluation_step(const Points& batch, Metrics& metrics) override {
    metrics.add("loss", nets->critic_loss(batch), batch_size(batch));
  }
  std::vector<ConfiguredOptimizer> configure_optimizers() override {
    if (one_optimizer) {
      return {{.groups = {{.parameters = trainable_parameters(*nets), .options = AdamOptions{}}}}};
    }
    return {{.groups = {{.parameters = parameters_with_prefix(*nets, "critic."),
                         .options = AdamOptions{.lr = 0.02, .eps = 1e-3}}},
             .frequency = 2},
            {.groups = {{.parameters = parameters_with_prefix(*nets, "generator."),
                         .options = AdamOptions{.lr = 0.05, .eps = 1e-3}}},
             .schedules = {[](const ScheduleProgress& at) { return at.step < 4 ? 1.0 : 0.5; }}}};
  }
};

TrainerOptions gan_options(std::int64_t accumulated = 1) {
  return {.max_epochs = 3,
          .accumulate_grad_batches = accumulated,
          .gradient_clip_norm = 0.3,
          .seed = 5,
          .info = {.recipe = "gan"}};
}

struct GanRun {
  StateDict state;
  std::string turns;
};

GanRun train_gan(const TrainerOptions& run, bool normalizes, const std::string& strategy = "single",
                 ProcessGroup group = group_of_one(), bool one_optimizer = false) {
  GanTask task(normalizes);
  task.one_optimizer = one_optimizer;
  BatchLoader<Points> training = loader_of_rows(points(), kPointBatch, group);
  BatchLoader<Points> validation = loader_of_rows(points(), kPointBatch, group);
  Trainer trainer(run, make_strategy(strategy, group));
  trainer.fit(task, training, validation);
  for (const torch::Tensor& parameter : task.nets->parameters()) {
    EXPECT_TRUE(parameter.requires_grad()) << "after the run all are as before";
  }
  return {copy_of_state(*task.nets), task.turns};
}

// The batches of `accumulated` steps at once have equal sizes, so that each has the same weight.
StateDict gan_by_hand(std::int64_t accumulated) {
  GanNets nets;
  using Options = torch::optim::AdamOptions;
  torch::optim::Adam of_critic(nets->critic->parameters(), Options(0.02).eps(1e-3));
  torch::optim::Adam of_generator(nets->generator->parameters(), Options(0.05).eps(1e-3));
  BatchLoader<Points> loader = loader_of_rows(points(), kPointBatch);
  std::int64_t step = 0;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    loader.set_epoch(epoch);
    Points batch;
    while (loader.steps_left() > 0) {
      const bool trains_critic = step % 3 < 2;
      torch::optim::Adam& optimizer = trains_critic ? of_critic : of_generator;
      of_generator.param_groups()[0].options().set_lr(step < 4 ? 0.05 : 0.025);
      nets->zero_grad();
      for (std::int64_t part = 0; part < accumulated; ++part) {
        EXPECT_TRUE(loader.next(batch));
        const torch::Tensor loss =
            trains_critic ? nets->critic_loss(batch) : nets->generator_loss(batch);
        (loss / static_cast<double>(accumulated)).backward();
      }
      torch::nn::utils::clip_grad_norm_(optimizer.parameters(), 0.3);
      optimizer.step();
      ++step;
    }
  }
  return copy_of_state(*nets);
}

StateDict train_gan_on_ranks(const TrainerOptions& run) {
  return state_of_ranks(2, [&run](ProcessGroup group) {
    return train_gan(run, /*normalizes=*/false, "ddp", std::move(group)).state;
  });
}

TEST(TrainerGan, EqualsALoopByHand) {
  const GanRun alone = train_gan(gan_options(), /*normalizes=*/false);
  EXPECT_EQ(alone.turns, "ccgccgccgccg");
  const StateDict expected = gan_by_hand(1);
  expect_near_state(alone.state, expected);
  expect_near_state(train_gan_on_ranks(gan_options()), expected);
}

// Looking at each step's loss and gradients, and averaging the weights, change nothing.
TEST(TrainerGan, MayBeCheckedAndAveraged) {
  TrainerOptions run = gan_options();
  run.on_nan = OnNan::kSkip;
  run.ema_decay = 0.9;
  run.log_histograms_every_n_steps = 1;
  expect_equal_bits(train_gan(run, false).state, train_gan(gan_options(), false).state);
}

TEST(TrainerGan, AStepOfSeveralBatchesIsOneTurn) {
  const GanRun alone = train_gan(gan_options(2), /*normalizes=*/false);
  EXPECT_EQ(alone.turns, "ccccggccccgg");
  const StateDict expected = gan_by_hand(2);
  expect_near_state(alone.state, expected);
  expect_near_state(train_gan_on_ranks(gan_options(2)), expected);
}

// The running statistics are buffers, which rank 0 sends to the others.
TEST(TrainerGan, AResumedRunHasTheSameBits) {
  for (const int ranks : {1, 2}) {
    const testing_support::TemporaryDirectory directory;
    TrainerOptions run = gan_options();
    const auto trained = [&run, ranks] {
      return state_of_ranks(ranks, [&](ProcessGroup group) {
        return train_gan(run, /*normalizes=*/true, "ddp", std::move(group)).state;
      });
    };
    const StateDict whole = trained();
    run.checkpoints.directory = directory.path() / "checkpoints";
    run.max_steps = 7;  // after the first of the critic's two steps
    trained();
    run.max_steps.reset();
    run.resume = true;
    expect_equal_bits(trained(), whole);
  }
}

TEST(TrainerGan, IsNotResumedWithAnotherNumberOfOptimizers) {
  const testing_support::TemporaryDirectory directory;
  TrainerOptions run = gan_options();
  run.checkpoints.directory = directory.path() / "checkpoints";
  run.max_steps = 2;
  train_gan(run, /*normalizes=*/false);
  run.max_steps.reset();
  run.resume = true;
  EXPECT_THAT(message_of<CheckpointError>(
                  [&] { train_gan(run, false, "single", group_of_one(), /*one_optimizer=*/true); }),
              testing::EndsWith(" has the state of 2 optimizers, but this run has 1; configure the "
                                "same optimizers, or give another CheckpointOptions::directory"));
}

}  // namespace
}  // namespace lockstep::train
