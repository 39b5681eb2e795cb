// What a task's configure_optimizers() may return, compared with torch::optim by hand.
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <numbers>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>

#include <lockstep/parallel/pipeline/balance.h>
#include <lockstep/parallel/pipeline/stage_module.h>
#include <tests/support/captured_log.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>
#include <tests/train/tasks/task_runs.h>

namespace lockstep::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::message_of;

constexpr std::int64_t kReadings = 48;
constexpr std::int64_t kReadingBatch = 16;  // three steps in an epoch

struct Readings {
  torch::Tensor values, targets;
};

std::shared_ptr<const RowsOf<Readings>> readings() {
  static const auto rows = [] {
    torch::manual_seed(8);
    return std::make_shared<const RowsOf<Readings>>(
        Readings{.values = torch::randn({kReadings, 4}), .targets = torch::randn({kReadings, 2})},
        kReadings);
  }();
  return rows;
}

struct ReadingNetImpl : torch::nn::Module {
  torch::nn::Linear body = register_module("body", torch::nn::Linear(4, 6));
  torch::nn::LayerNorm norm = register_module(
      "norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions(std::vector<std::int64_t>{6})));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(6, 2));

  ReadingNetImpl() { set_fixed_weights(*this); }
  torch::Tensor loss(const Readings& batch) {
    const torch::Tensor hidden = torch::tanh(norm->forward(body->forward(batch.values)));
    return torch::mse_loss(head->forward(hidden), batch.targets);
  }
};
TORCH_MODULE(ReadingNet);

using Configure = std::function<std::vector<ConfiguredOptimizer>(const ReadingNet&)>;

struct ReadingsTask final : BatchTask<Readings> {
  explicit ReadingsTask(Configure given) : configure(std::move(given)) {}
  ReadingNet net;
  Configure configure;
  torch::nn::Module& module() override { return *net; }
  torch::Tensor training_step(const Readings& batch) override { return net->loss(batch); }
  void evaluation_step(const Readings& batch, Metrics& metrics) override {
    metrics.add("loss", net->loss(batch), batch_size(batch));
  }
  std::vector<ConfiguredOptimizer> configure_optimizers() override { return configure(net); }
};

TrainerOptions reading_options() {
  return {.max_epochs = 2,
          .optimizer = SgdOptions{.lr = 100},  // not used
          .gradient_clip_norm = 0.2,
          .schedule = {.kind = ScheduleKind::kStep, .step_epochs = 1, .gamma = 0.5},
          .seed = 5,
          .info = {.recipe = "readings"}};
}

StateDict train_readings(const TrainerOptions& run, const Configure& configure,
                         const std::string& strategy = "single",
                         ProcessGroup group = group_of_one()) {
  ReadingsTask task(configure);
  BatchLoader<Readings> loader = loader_of_rows(readings(), kReadingBatch, group);
  Trainer trainer(run, make_strategy(strategy, group));
  trainer.fit(task, loader);
  return copy_of_state(*task.net);
}

StateDict train_readings_on_ranks(const TrainerOptions& run, const Configure& configure,
                                  const std::string& strategy) {
  return state_of_ranks(2, [&](ProcessGroup group) {
    return train_readings(run, configure, strategy, std::move(group));
  });
}

// The steps of reading_options() by hand. `schedule` sets the learning rates of a step.
StateDict readings_by_hand(
    ReadingNet net, torch::optim::Optimizer& optimizer,
    const std::function<void(torch::optim::Optimizer&, std::int64_t step)>& schedule) {
  BatchLoader<Readings> loader = loader_of_rows(readings(), kReadingBatch);
  std::int64_t step = 0;
  for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
    loader.set_epoch(epoch);
    for (const Readings& batch : loader) {
      schedule(optimizer, step++);
      optimizer.zero_grad();
      net->loss(batch).backward();
      torch::nn::utils::clip_grad_norm_(net->parameters(), 0.2);
      optimizer.step();
    }
  }
  return copy_of_state(*net);
}

// Resumes within the second epoch.
void expect_equal_readings_after_resume(
    const std::function<StateDict(const TrainerOptions&)>& train) {
  expect_equal_bits_after_resume(reading_options(), 4, train);
}

// --- Groups

std::vector<ConfiguredOptimizer> reading_groups(const ReadingNet& net) {
  return {{.groups = {{.parameters = parameters_with_prefix(*net, "body."),
                       .options = AdamWOptions{.lr = 0.05, .weight_decay = 0.1}},
                      {.parameters = parameters_with_prefix(*net, "norm."),
                       .options = AdamWOptions{.lr = 0.02, .weight_decay = 0}},
                      {.parameters = parameters_with_prefix(*net, "head."),
                       .options = AdamWOptions{.lr = 0.1, .weight_decay = 0.3}}},
           .schedules = {schedule_function({.kind = ScheduleKind::kCosine}),
                         [](const ScheduleProgress& at) {
                           return 1.0 / (1.0 + static_cast<double>(at.step));
                         },
                         {}}}};
}

StateDict reading_groups_by_hand() {
  ReadingNet net;
  using Options = torch::optim::AdamWOptions;
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(net->body->parameters(),
                      std::make_unique<Options>(Options(0.05).weight_decay(0.1)));
  groups.emplace_back(net->norm->parameters(),
                      std::make_unique<Options>(Options(0.02).weight_decay(0)));
  groups.emplace_back(net->head->parameters(),
                      std::make_unique<Options>(Options(0.1).weight_decay(0.3)));
  torch::optim::AdamW optimizer(groups, Options(1));
  return readings_by_hand(net, optimizer, [](torch::optim::Optimizer& all, std::int64_t step) {
    const auto at = static_cast<double>(step);
    auto& each = all.param_groups();
    each[0].options().set_lr(0.05 * (1 + std::cos(std::numbers::pi * at / 6)) / 2);
    each[1].options().set_lr(0.02 / (1 + at));
    each[2].options().set_lr(0.1 * (step < 3 ? 1 : 0.5));
  });
}

TEST(TrainerGroups, HaveTheirOwnOptionsAndSchedules) {
  const StateDict expected = reading_groups_by_hand();
  expect_near_state(train_readings(reading_options(), reading_groups), expected);
  for (const char* strategy : {"ddp", "zero1"}) {
    expect_near_state(train_readings_on_ranks(reading_options(), reading_groups, strategy),
                      expected);
  }
}

TEST(TrainerGroups, AResumedRunHasTheSameBits) {
  expect_equal_readings_after_resume(
      [](const TrainerOptions& run) { return train_readings(run, reading_groups); });
  expect_equal_readings_after_resume([](const TrainerOptions& run) {
    return train_readings_on_ranks(run, reading_groups, "zero1");
  });
}

// The state has the parameters' names in the module, whatever their groups.
TEST(TrainerGroups, ReadTheCheckpointOfARunWithoutGroups) {
  const testing_support::TemporaryDirectory directory;
  const testing_support::CapturedLog log;
  const auto all_alike = [](const ReadingNet&) { return std::vector<ConfiguredOptimizer>(); };
  const auto grouped = [](const ReadingNet& net) -> std::vector<ConfiguredOptimizer> {
    return {
        {.groups = {
             {.parameters = trainable_parameters(*net->head), .options = AdamWOptions{.lr = 0.05}},
             {.parameters = trainable_parameters(*net->body), .options = AdamWOptions{.lr = 0.05}},
             {.parameters = trainable_parameters(*net->norm),
              .options = AdamWOptions{.lr = 0.05}}}}};
  };
  TrainerOptions run = reading_options();
  run.optimizer = AdamWOptions{.lr = 0.05};
  const StateDict whole = train_readings(run, all_alike);
  run.checkpoints.directory = directory.path() / "checkpoints";
  run.max_steps = 4;
  train_readings(run, all_alike);
  run.max_steps.reset();
  run.resume = true;
  expect_near_state(train_readings(run, grouped), whole);
  EXPECT_THAT(log.lines(), testing::Contains(HasSubstr("parameter_groups unknown (now adamw")));
}

TEST(TrainerGroups, DecayOnlyWhatHasTwoDimensions) {
  torch::nn::Sequential net(torch::nn::Embedding(5, 4), torch::nn::Linear(4, 3),
                            torch::nn::LayerNorm(torch::nn::LayerNormOptions({3})));
  net->parameters()[2].set_requires_grad(false);  // the linear layer's bias
  const auto groups = no_decay_on_norms_and_biases(*net, AdamWOptions{.lr = 0.3, .beta2 = 0.95});
  const auto names_of = [](const ParameterGroup& group) {
    std::vector<std::string> names;
    for (const auto& [name, parameter] : group.parameters) names.push_back(name);
    return names;
  };
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_THAT(names_of(groups[0]), ElementsAre("0.weight", "1.weight"));
  EXPECT_THAT(names_of(groups[1]), ElementsAre("2.weight", "2.bias"));
  for (const ParameterGroup& group : groups) {
    const auto& options = std::get<AdamWOptions>(group.options);
    EXPECT_EQ(options.lr, 0.3);
    EXPECT_EQ(options.beta2, 0.95);
    EXPECT_EQ(options.weight_decay, &group == groups.data() ? 0.01 : 0);
  }
}

// A classifier of digits in two stages, whose layers are groups.
struct GroupedDigits final : ClassificationTask {
  explicit GroupedDigits(const torch::nn::Sequential& given)
      : ClassificationTask(given, ClassificationLoss::kCrossEntropy,
                           [given](int) { return pipeline::stage_modules(split(given, {3, 1})); }),
        net(given) {}
  std::vector<ConfiguredOptimizer> configure_optimizers() override {
    return {{.groups = {{.parameters = parameters_with_prefix(*net, "1."),
                         .options = SgdOptions{.lr = 0.05, .momentum = 0.9}},
                        {.parameters = parameters_with_prefix(*net, "3."),
                         .options = SgdOptions{.lr = 0.2, .momentum = 0.5}}},
             .schedules = {{}, [](const ScheduleProgress& at) { return at.step < 3 ? 1 : 0.1; }}}};
  }
  torch::nn::Sequential net;
};

StateDict train_grouped_digits(const std::string& strategy, ProcessGroup group = group_of_one()) {
  GroupedDigits task(torch::nn::Sequential(torch::nn::Flatten(), torch::nn::Linear(28 * 28, 12),
                                           torch::nn::Tanh(), torch::nn::Linear(12, 10)));
  set_fixed_weights(*task.net);
  StrategyOptions strategy_options;
  if (strategy == "dp") strategy_options.devices = {torch::kCPU, torch::kCPU};
  auto chosen = make_strategy(strategy, group, strategy_options);
  const DataShare share = chosen->data_share();
  Loader loader(train_images(),
                DistributedSampler(kImages, {.rank = share.rank, .world_size = share.size}),
                kNormalize, {.batch_size = kGlobalBatch / share.size});
  Trainer trainer(
      {.gradient_clip_norm = 1.0, .schedule = {.kind = ScheduleKind::kCosine}, .seed = 5},
      std::move(chosen));
  trainer.fit(task, loader);
  return copy_of_state(*task.net);
}

TEST(TrainerGroups, AreThoseOfOneProcessWithEveryStrategy) {
  const StateDict alone = train_grouped_digits("single");
  for (const char* strategy : {"dp", "pipeline"}) {
    SCOPED_TRACE(strategy);
    expect_close(train_grouped_digits(strategy), alone);
  }
  for (const char* strategy : {"ddp", "zero1", "pipeline", "hybrid"}) {
    SCOPED_TRACE(strategy);
    StateDict of_first;
    const auto errors = testing_support::run_group(2, "shm", [&](ProcessGroup group) {
      at::set_num_threads(1);
      const bool is_first = group.rank() == 0;
      StateDict state = train_grouped_digits(strategy, std::move(group));
      if (is_first) of_first = std::move(state);
    });
    EXPECT_EQ(errors, testing_support::no_errors(2));
    expect_close(of_first, alone);
  }
}

// --- An optimizer of the program's own

std::vector<ConfiguredOptimizer> reading_rmsprop(const ReadingNet& net) {
  return {torch_optimizer<torch::optim::RMSprop>(trainable_parameters(*net),
                                                 torch::optim::RMSpropOptions(0.02).momentum(0.5))};
}

TEST(TrainerOwnOptimizer, IsOneOfLibTorch) {
  ReadingNet net;
  torch::optim::RMSprop optimizer(net->parameters(),
                                  torch::optim::RMSpropOptions(0.02).momentum(0.5));
  const StateDict expected =
      readings_by_hand(net, optimizer, [](torch::optim::Optimizer& all, std::int64_t step) {
        all.param_groups()[0].options().set_lr(step < 3 ? 0.02 : 0.01);
      });
  expect_near_state(train_readings(reading_options(), reading_rmsprop), expected);
  expect_near_state(train_readings_on_ranks(reading_options(), reading_rmsprop, "ddp"), expected);
}

TEST(TrainerOwnOptimizer, AResumedRunHasTheSameBits) {
  expect_equal_readings_after_resume(
      [](const TrainerOptions& run) { return train_readings(run, reading_rmsprop); });
  expect_equal_readings_after_resume([](const TrainerOptions& run) {
    return train_readings_on_ranks(run, reading_rmsprop, "ddp");
  });
}

// Steps by the sign of a sum of the gradients so far. It remembers nothing before its first step.
class SignOfSum final : public OwnOptimizer {
 public:
  explicit SignOfSum(NamedTensors parameters) : parameters_(std::move(parameters)) {}
  void step() override {
    const torch::NoGradGuard no_grad;
    if (sums_.empty()) {
      for (const auto& [name, parameter] : parameters_) {
        sums_.emplace_back("sum." + name, torch::zeros_like(parameter));
      }
    }
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      sums_[i].second += parameters_[i].second.grad();
      torch::Tensor parameter = parameters_[i].second;
      parameter.sub_(sums_[i].second.sign(), lr_);
    }
  }
  double lr() const override { return lr_; }
  void scale_lr(double factor) override { lr_ = 0.01 * factor; }
  NamedTensors state() override { return sums_; }
  void load_state(const NamedTensors& state) override { sums_ = state; }

 private:
  const NamedTensors parameters_;
  NamedTensors sums_;
  double lr_ = 0.01;
};

std::vector<ConfiguredOptimizer> reading_signs(const ReadingNet& net) {
  return {own_optimizer(trainable_parameters(*net), [](const NamedTensors& parameters) {
    return std::make_unique<SignOfSum>(parameters);
  })};
}

TEST(TrainerOwnOptimizer, MayRememberTensorsOfAnyForm) {
  expect_equal_readings_after_resume(
      [](const TrainerOptions& run) { return train_readings(run, reading_signs); });
  expect_equal_readings_after_resume(
      [](const TrainerOptions& run) { return train_readings_on_ranks(run, reading_signs, "ddp"); });
}

TEST(TrainerOwnOptimizer, IsNotResumedByOneOfAnotherKind) {
  const testing_support::TemporaryDirectory directory;
  TrainerOptions run = reading_options();
  run.checkpoints.directory = directory.path() / "checkpoints";
  run.max_steps = 2;
  train_readings(run, reading_signs);
  run.max_steps.reset();
  run.resume = true;
  EXPECT_THAT(message_of<CheckpointError>([&] { train_readings(run, reading_groups); }),
              HasSubstr("has the state of optimizer own, but this run's is adamw; configure the "
                        "same optimizers, or give another CheckpointOptions::directory"));
}

// --- Refusals

std::string refusal_of_readings(const Configure& configure, TrainerOptions run = reading_options(),
                                const std::string& strategy = "single") {
  return message_of<ConfigError>([&] { train_readings(run, configure, strategy); });
}

ParameterGroup group_of_readings(const ReadingNet& net, const std::string& prefix) {
  return {.parameters = parameters_with_prefix(*net, prefix), .options = SgdOptions{}};
}

TEST(TrainerOptimizers, HaveEachTrainableParameterOnce) {
  EXPECT_EQ(refusal_of_readings([](const ReadingNet& net) -> std::vector<ConfiguredOptimizer> {
              return {{.groups = {group_of_readings(net, "body."), group_of_readings(net, "norm."),
                                  group_of_readings(net, "head.w")}}};
            }),
            "Trainer: configure_optimizers(): parameter 'head.bias' requires a gradient, but no "
            "optimizer has it; add it to a group, or freeze it before fit()");
  EXPECT_EQ(refusal_of_readings([](const ReadingNet& net) -> std::vector<ConfiguredOptimizer> {
              return {{.groups = {group_of_readings(net, "")}},
                      {.groups = {group_of_readings(net, "head.")}}};
            }),
            "Trainer: configure_optimizers(): parameter 'head.weight' is in two groups; a "
            "parameter belongs to one");
  EXPECT_EQ(refusal_of_readings([](const ReadingNet&) -> std::vector<ConfiguredOptimizer> {
              return {{.groups = {group_of_readings(ReadingNet(), "head.w")}}};
            }),
            "Trainer: configure_optimizers(): parameter 'head.weight' is not one of the task's "
            "module");
}

TEST(TrainerOptimizers, MustBeComplete) {
  EXPECT_EQ(refusal_of_readings([](const ReadingNet&) -> std::vector<ConfiguredOptimizer> {
              return {{.frequency = 2}};
            }),
            "Trainer: configure_optimizers(): an optimizer has no parameter group");
  EXPECT_EQ(refusal_of_readings([](const ReadingNet& net) -> std::vector<ConfiguredOptimizer> {
              return {{.groups = {group_of_readings(net, "")}, .frequency = 0}};
            }),
            "Trainer: configure_optimizers(): frequency must be at least 1, got 0");
  EXPECT_EQ(refusal_of_readings([](const ReadingNet& net) -> std::vector<ConfiguredOptimizer> {
              return {{.groups = {group_of_readings(net, "")}, .schedules = {{}, {}}}};
            }),
            "Trainer: configure_optimizers(): an optimizer has 1 learning rate and 2 schedules; "
            "give one for each group, or none");
}

TEST(TrainerOptimizers, NeedMomentumInEveryGroupToCycleIt) {
  TrainerOptions cycle = reading_options();
  cycle.schedule = {.kind = ScheduleKind::kOneCycle, .cycle_momentum = true};
  const Configure only_in_the_first =
      [](const ReadingNet& net) -> std::vector<ConfiguredOptimizer> {
    ParameterGroup body = group_of_readings(net, "body.");
    body.options = SgdOptions{.momentum = 0.9};
    return {{.groups = {body, group_of_readings(net, "norm."), group_of_readings(net, "head.")}}};
  };
  EXPECT_EQ(refusal_of_readings(only_in_the_first, cycle),
            "Trainer: cycle_momentum needs an optimizer with momentum, but sgd has a momentum of "
            "0; set one, or use adam or adamw");
}

TEST(TrainerOptimizers, NameWhatCannotDriveThem) {
  TrainerOptions plateau = reading_options();
  plateau.schedule = {.kind = ScheduleKind::kPlateau};
  EXPECT_EQ(refusal_of_readings(reading_rmsprop, plateau),
            "Trainer: configure_optimizers(): an optimizer of the program's own takes only factors "
            "of its learning rate, not schedule plateau");
  EXPECT_EQ(refusal_of_readings(reading_rmsprop, reading_options(), "zero1"),
            "strategy zero1: an optimizer of the program's own (configure_optimizers()) holds "
            "whole parameters; use strategy single or ddp, or one of Lockstep's optimizers");
  const Configure two = [](const ReadingNet& net) -> std::vector<ConfiguredOptimizer> {
    return {{.groups = {group_of_readings(net, "body."), group_of_readings(net, "norm.")}},
            {.groups = {group_of_readings(net, "head.")}}};
  };
  EXPECT_EQ(refusal_of_readings(two, reading_options(), "zero1"),
            "strategy zero1 steps all parameters with one optimizer, but configure_optimizers() "
            "returns 2; use strategy single or ddp");
  TrainerOptions graph = reading_options();
  graph.cuda_graph = true;
  EXPECT_EQ(refusal_of_readings(two, graph, "ddp"),
            "Trainer: cuda_graph records one kind of step, but configure_optimizers() returns 2 "
            "optimizers that take turns; remove TrainerOptions::cuda_graph");
  EXPECT_EQ(message_of<ConfigError>([] { schedule_function({.kind = ScheduleKind::kPlateau}); }),
            "schedule_function: schedule plateau depends on evaluations; set the Trainer's own "
            "schedule");
}

}  // namespace
}  // namespace lockstep::train
