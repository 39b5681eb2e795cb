// The code of docs/training_loop.md about batches of any structure and about optimizers.
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/rmsprop.h>

#include <lockstep/train/trainer.h>
#include <tests/train/tasks/task_runs.h>

namespace lockstep::train {
namespace {

// Names of the guide are in a namespace of their own, because tests share one.
namespace guide {

struct Camera {
  torch::Tensor image, depth;
};
struct Frames {
  Camera camera;
  torch::Tensor pose;
  std::tuple<torch::Tensor, torch::Tensor> targets;  // mask, next pose
};

struct NetImpl : torch::nn::Module {
  torch::nn::Linear image = register_module("image", torch::nn::Linear(8, 6));
  torch::nn::Linear pose = register_module("pose", torch::nn::Linear(3, 6));
  torch::nn::Linear mask = register_module("mask", torch::nn::Linear(6, 4));
  torch::nn::Linear next = register_module("next", torch::nn::Linear(6, 3));

  NetImpl() { set_fixed_weights(*this); }
  std::tuple<torch::Tensor, torch::Tensor> forward(const Camera& camera, const torch::Tensor& at) {
    const torch::Tensor seen = torch::cat({camera.image, camera.depth}, 1);
    const torch::Tensor hidden = torch::tanh(image->forward(seen) + pose->forward(at));
    return {mask->forward(hidden), next->forward(hidden)};
  }
};
TORCH_MODULE(Net);

struct FrameTask : lockstep::BatchTask<Frames> {
  Net net;
  torch::nn::Module& module() override { return *net; }
  torch::Tensor training_step(const Frames& batch) override {
    const auto [mask, next] = net->forward(batch.camera, batch.pose);
    const auto& [true_mask, true_next] = batch.targets;
    return torch::binary_cross_entropy_with_logits(mask, true_mask) +
           0.1 * torch::mse_loss(next, true_next);
  }
  void evaluation_step(const Frames& batch, lockstep::Metrics& metrics) override {
    metrics.add("loss", training_step(batch), batch_size(batch));
  }
  std::vector<lockstep::ConfiguredOptimizer> configure_optimizers() override {
    return {{.groups = lockstep::no_decay_on_norms_and_biases(
                 *net, lockstep::AdamWOptions{.lr = 3e-3, .weight_decay = 0.1})}};
  }
};

struct ScheduledTask : FrameTask {
  std::vector<lockstep::ConfiguredOptimizer> configure_optimizers() override {
    auto groups =
        lockstep::group_parameters(*net, [](const std::string& name, const torch::Tensor&) {
          return lockstep::SgdOptions{.lr = name.starts_with("next.") ? 0.2 : 0.05};
        });
    const lockstep::LearningRateFactor halves = [](const lockstep::ScheduleProgress& at) {
      return 1.0 / static_cast<double>(std::int64_t{1} << (at.step / at.steps_per_epoch));
    };
    const auto cosine = lockstep::schedule_function({.kind = lockstep::ScheduleKind::kCosine});
    return {{.groups = std::move(groups), .schedules = {cosine, halves}}};
  }
};

struct RmsPropTask : FrameTask {
  std::vector<lockstep::ConfiguredOptimizer> configure_optimizers() override {
    return {lockstep::torch_optimizer<torch::optim::RMSprop>(
        lockstep::trainable_parameters(*net), torch::optim::RMSpropOptions(1e-3).momentum(0.9))};
  }
};

struct Faces {
  torch::Tensor real, noise;
};

struct Gan : lockstep::BatchTask<Faces> {
  torch::nn::Sequential critic{torch::nn::Linear(4, 6), torch::nn::Tanh(), torch::nn::Linear(6, 1)};
  torch::nn::Sequential generator{torch::nn::Linear(2, 6), torch::nn::Tanh(),
                                  torch::nn::Linear(6, 4)};
  std::shared_ptr<torch::nn::Module> nets = std::make_shared<torch::nn::Module>();

  Gan() {
    nets->register_module("critic", critic.ptr());
    nets->register_module("generator", generator.ptr());
  }
  torch::nn::Module& module() override { return *nets; }
  torch::Tensor training_step(const Faces& batch) override {
    const torch::Tensor fake = generator->forward(batch.noise);
    if (optimizer_index() == 1) return torch::softplus(-critic->forward(fake)).mean();
    return torch::softplus(-critic->forward(batch.real)).mean() +
           torch::softplus(critic->forward(fake)).mean();
  }
  void evaluation_step(const Faces&, lockstep::Metrics&) override {}
  std::vector<lockstep::ConfiguredOptimizer> configure_optimizers() override {
    const auto of_critic = lockstep::parameters_with_prefix(*nets, "critic.");
    const auto of_generator = lockstep::parameters_with_prefix(*nets, "generator.");
    return {{.groups = {{of_critic, lockstep::AdamOptions{.lr = 4e-4}}}, .frequency = 2},
            {.groups = {{of_generator, lockstep::AdamOptions{.lr = 1e-4}}}}};
  }
};

}  // namespace guide

std::shared_ptr<const RowsOf<guide::Frames>> guide_frames() {
  torch::manual_seed(9);
  return std::make_shared<const RowsOf<guide::Frames>>(
      guide::Frames{.camera = {.image = torch::randn({24, 5}), .depth = torch::randn({24, 3})},
                    .pose = torch::randn({24, 3}),
                    .targets = {torch::ones({24, 4}), torch::randn({24, 3})}},
      24);
}

template <class Task>
RunReport trained_by_guide(const TrainerOptions& options) {
  using guide::Frames;
  const auto frames = guide_frames();
  const ProcessGroup group = group_of_one();

  Task task;
  lockstep::BatchLoader<Frames> loader(frames, lockstep::DistributedSampler(frames->size()),
                                       {.batch_size = 8});
  lockstep::BatchLoader<Frames> validation(frames, lockstep::EvaluationSampler(frames->size()),
                                           {.batch_size = 8});
  lockstep::Trainer trainer(options, lockstep::make_strategy("ddp", group));
  return trainer.fit(task, loader, validation);
}

TEST(TrainerTaskGuide, BatchesOfAnyStructureAndOptimizersOfAnyKindLearn) {
  const TrainerOptions options{.max_epochs = 4, .model_summary_depth = 1};
  for (const RunReport& report : {trained_by_guide<guide::FrameTask>(options),
                                  trained_by_guide<guide::ScheduledTask>(options),
                                  trained_by_guide<guide::RmsPropTask>(options)}) {
    ASSERT_EQ(report.epochs.size(), 4U);
    EXPECT_LT(report.epochs[3].train_loss, report.epochs[0].train_loss);
    EXPECT_EQ(report.test->samples, 24);
  }
}

TEST(TrainerTaskGuide, TwoOptimizersTakeTurns) {
  guide::Gan task;
  torch::manual_seed(3);
  const auto faces = std::make_shared<const RowsOf<guide::Faces>>(
      guide::Faces{.real = torch::randn({16, 4}), .noise = torch::randn({16, 2})}, 16);
  BatchLoader<guide::Faces> loader = loader_of_rows(faces, 8);
  const StateDict before = copy_of_state(task.module());
  const auto train_epochs = [&](std::int64_t epochs) {
    Trainer({.max_epochs = epochs}, make_strategy("single", group_of_one())).fit(task, loader);
  };
  train_epochs(1);  // two steps, both of the critic
  const StateDict after = copy_of_state(task.module());
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(before[i].second.equal(after[i].second), before[i].first.starts_with("generator."));
  }
}

}  // namespace
}  // namespace lockstep::train
