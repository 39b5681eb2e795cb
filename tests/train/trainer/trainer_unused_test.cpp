// Steps whose loss does not depend on all parameters.
#include <lockstep/train/trainer.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <lockstep/core/error.h>
#include <tests/support/messages.h>
#include <tests/train/staged_net.h>

namespace lockstep::train {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing_support::message_of;
using testing_support::no_errors;
using testing_support::run_group;

// The last layer of a net. It uses one part for all batches, one for some of them, and one never.
struct GatedLayerImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor output = always->forward(x);
    return opens(x) ? output + sometimes->forward(x) : output;
  }
  static bool opens(const torch::Tensor& x) {
    return x.detach().select(1, 0).mean().item<float>() > kThreshold;
  }
  static constexpr float kThreshold = 0;

  torch::nn::Linear always = register_module("always", torch::nn::Linear(16, 10));
  torch::nn::Linear sometimes = register_module("sometimes", torch::nn::Linear(16, 10));
  torch::nn::Linear never = register_module("never", torch::nn::Linear(16, 10));
};
TORCH_MODULE(GatedLayer);

torch::nn::Sequential make_gated_net() {
  torch::nn::Sequential net(torch::nn::Flatten(), torch::nn::Linear(28 * 28, 16), torch::nn::Tanh(),
                            GatedLayer());
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& parameter : net->parameters()) {
    const double scale = parameter.dim() == 2 ? 1 / std::sqrt(parameter.size(1)) : 0.1;
    parameter.copy_(torch::arange(parameter.numel()).mul(0.7).sin().mul(scale).view_as(parameter));
  }
  return net;
}

ClassificationTask gated_task(const torch::nn::Sequential& net) {
  return ClassificationTask(net, ClassificationLoss::kCrossEntropy,
                            [net](int) { return pipeline::stage_modules(split(net, {3, 1})); });
}

constexpr double kRate = 0.05, kMomentum = 0.9, kDecay = 0.1;

TrainerOptions unused_run() {
  TrainerOptions run = options(2);
  run.optimizer = SgdOptions{.lr = kRate, .momentum = kMomentum, .weight_decay = kDecay};
  run.schedule = {};
  return run;
}

// How often a step's batches used the part `sometimes`, by the number of shares.
using Uses = std::vector<int>;

// Takes equal steps with LibTorch's own optimizer and the mean of the gradients of all shares, in
// which a missing one counts as zero. A parameter without any gradient keeps the one that it has.
StateDict unused_by_hand(int shares, Uses& uses) {
  torch::nn::Sequential net = make_gated_net();
  torch::optim::SGD optimizer(
      net->parameters(), torch::optim::SGDOptions(kRate).momentum(kMomentum).weight_decay(kDecay));
  std::vector<Loader> loaders;
  for (int rank = 0; rank < shares; ++rank) {
    loaders.emplace_back(train_images(),
                         DistributedSampler(kImages, {.rank = rank, .world_size = shares}),
                         kNormalize, LoaderOptions{.batch_size = kGlobalBatch / shares});
  }
  uses.assign(static_cast<std::size_t>(shares) + 1, 0);
  std::vector<torch::Tensor> parameters = net->parameters();
  for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
    for (Loader& loader : loaders) loader.set_epoch(epoch);
    for (std::int64_t step = 0; step < 6; ++step) {
      optimizer.zero_grad(/*set_to_none=*/false);
      int used = 0;
      for (Loader& loader : loaders) {
        Batch batch;
        LOCKSTEP_CHECK(loader.next(batch), "no batch");
        const torch::Tensor loss =
            torch::nn::functional::cross_entropy(net->forward(batch.images), batch.labels);
        const auto gradients = torch::autograd::grad({loss / shares}, parameters, {}, std::nullopt,
                                                     false, /*allow_unused=*/true);
        for (std::size_t i = 0; i < parameters.size(); ++i) {
          if (!gradients[i].defined()) continue;
          torch::Tensor& sum = parameters[i].mutable_grad();
          sum = sum.defined() ? sum + gradients[i] : gradients[i].clone();
        }
        used += gradients[4].defined() ? 1 : 0;
      }
      ++uses[static_cast<std::size_t>(used)];
      optimizer.step();
    }
  }
  return state_dict(*net);
}

struct UnusedWay {
  const char* name;
  int ranks;
  int shares;
  StagedRun run;
  const char* backend = "shm";
};

std::vector<UnusedWay> unused_ways() {
  const StrategyOptions searching{.find_unused_parameters = true};
  const StrategyOptions staged{.stages = 2, .micro_batches = 1};
  StrategyOptions hybrid = staged, sharded = staged;
  hybrid.find_unused_parameters = true;
  sharded.find_unused_parameters = true;
  sharded.shard_optimizer = true;
  return {{"single", 1, 1, {}},
          {"dp", 1, 1, {.strategy = "dp", .options = {.devices = {torch::kCPU}}}},
          {"threads", 1, 1, {.strategy = "pipeline", .options = staged}},
          {"ranks", 2, 1, {.strategy = "pipeline", .options = staged}},
          {"ddp", 2, 2, {.strategy = "ddp", .options = searching}},
          {"ddp over gloo", 2, 2, {.strategy = "ddp", .options = searching}, "gloo"},
          {"zero1", 2, 2, {.strategy = "zero1", .options = searching}},
          {"zero1 over gloo", 2, 2, {.strategy = "zero1", .options = searching}, "gloo"},
          {"hybrid", 4, 2, {.strategy = "hybrid", .options = hybrid}},
          {"hybrid, sharded", 4, 2, {.strategy = "hybrid", .options = sharded}}};
}

TEST(TrainerUnusedParameters, AreSteppedAsByHand) {
  at::set_num_threads(1);
  std::vector<StateDict> expected(3);
  for (const int shares : {1, 2}) {
    Uses uses;
    expected[static_cast<std::size_t>(shares)] = unused_by_hand(shares, uses);
    for (const int steps : uses) EXPECT_GT(steps, 0) << "the batches are no test of " << shares;
  }
  for (const UnusedWay& way : unused_ways()) {
    SCOPED_TRACE(way.name);
    StateDict state;
    const auto train_rank = [&](const ProcessGroup& group) {
      at::set_num_threads(1);
      const torch::nn::Sequential net = make_gated_net();
      ClassificationTask task = gated_task(net);
      train_staged(unused_run(), group, way.run, task);
      if (group.rank() == 0) state = state_dict(*net);
    };
    if (way.ranks == 1) {
      train_rank(group_of_one());
    } else {
      EXPECT_EQ(run_group(way.ranks, way.backend, train_rank), no_errors(way.ranks));
    }
    expect_close(state, expected[static_cast<std::size_t>(way.shares)]);
  }
}

TEST(TrainerUnusedParameters, AreErrorsThatNameTheOption) {
  const StrategyOptions staged{.stages = 2, .micro_batches = 1};
  const UnusedWay ways[] = {{"ddp", 2, 2, {.strategy = "ddp"}},
                            {"zero1", 2, 2, {.strategy = "zero1"}},
                            {"hybrid", 4, 2, {.strategy = "hybrid", .options = staged}}};
  for (const UnusedWay& way : ways) {
    const auto errors = run_group(way.ranks, "shm", [&](const ProcessGroup& group) {
      at::set_num_threads(1);
      ClassificationTask task = gated_task(make_gated_net());
      train_staged(unused_run(), group, way.run, task);
    });
    EXPECT_THAT(errors, Each(HasSubstr("Options::find_unused_parameters"))) << way.name;
    EXPECT_THAT(errors, Each(testing::AnyOf(HasSubstr("never"), HasSubstr("sometimes"))))
        << way.name;
  }
}

TEST(TrainerUnusedParameters, NeedNoOptionInOneProcess) {
  const StrategyOptions searching{.find_unused_parameters = true};
  for (const char* strategy : {"dp", "pipeline"}) {
    EXPECT_THAT(
        message_of<ConfigError>([&] { make_strategy(strategy, group_of_one(), searching); }),
        HasSubstr(str("strategy ", strategy,
                      ": find_unused_parameters belongs to ddp, zero1 and hybrid")));
  }
}

// --- Backwards within a backward

// Runs a layer again during backward, as checkpointing does.
struct RunsAgain : torch::autograd::Function<RunsAgain> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, torch::Tensor x,
                               torch::nn::LinearImpl* layer) {
    context->save_for_backward({x});
    context->saved_data["layer"] = reinterpret_cast<std::int64_t>(layer);
    const torch::NoGradGuard no_grad;
    return layer->forward(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    auto* const layer =
        reinterpret_cast<torch::nn::LinearImpl*>(context->saved_data["layer"].toInt());
    const torch::AutoGradMode grad(true);
    const torch::Tensor x = context->get_saved_variables()[0].detach().requires_grad_();
    layer->forward(x).backward(gradients[0]);
    return {x.grad(), {}};
  }
};

// Uses its middle layer twice.
struct RecomputedNetImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& images) {
    torch::Tensor x = begin->forward(images.flatten(1)).tanh();
    for (int use = 0; use < 2; ++use) {
      x = recomputes ? RunsAgain::apply(x, middle.get()) : middle->forward(x);
    }
    return end->forward(x);
  }
  torch::nn::Linear begin = register_module("begin", torch::nn::Linear(28 * 28, 16));
  torch::nn::Linear middle = register_module("middle", torch::nn::Linear(16, 16));
  torch::nn::Linear end = register_module("end", torch::nn::Linear(16, 10));
  bool recomputes = true;
};
TORCH_MODULE(RecomputedNet);

RecomputedNet make_recomputed_net() {
  RecomputedNet net;
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& parameter : net->parameters()) {
    const double scale = parameter.dim() == 2 ? 1 / std::sqrt(parameter.size(1)) : 0.1;
    parameter.copy_(torch::arange(parameter.numel()).mul(0.7).sin().mul(scale).view_as(parameter));
  }
  return net;
}

// One process with LibTorch's own optimizer, and without recomputation.
StateDict recomputed_by_hand() {
  RecomputedNet net = make_recomputed_net();
  net->recomputes = false;
  torch::optim::SGD optimizer(
      net->parameters(), torch::optim::SGDOptions(kRate).momentum(kMomentum).weight_decay(kDecay));
  Loader loader = train_loader(group_of_one());
  for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
    loader.set_epoch(epoch);
    for (Batch batch; loader.next(batch);) {
      optimizer.zero_grad();
      torch::nn::functional::cross_entropy(net->forward(batch.images), batch.labels).backward();
      optimizer.step();
    }
  }
  return state_dict(*net);
}

std::vector<std::string> errors_of_recomputed(const char* strategy, bool static_graph,
                                              StateDict& state) {
  return run_group(2, "shm", [&](const ProcessGroup& group) {
    at::set_num_threads(1);
    const RecomputedNet net = make_recomputed_net();
    ClassificationTask task(net, ClassificationLoss::kCrossEntropy);
    train_staged(unused_run(), group,
                 {.strategy = strategy, .options = {.static_graph = static_graph}}, task);
    if (group.rank() == 0) state = state_dict(*net);
  });
}

TEST(TrainerStaticGraph, TakesSeveralGradientsOfAParameterInAStep) {
  at::set_num_threads(1);
  const StateDict expected = recomputed_by_hand();
  for (const char* strategy : {"ddp", "zero1"}) {
    SCOPED_TRACE(strategy);
    StateDict state;
    EXPECT_EQ(errors_of_recomputed(strategy, /*static_graph=*/true, state), no_errors(2));
    expect_close(state, expected);
    // The advice of the error is an option of the strategy.
    EXPECT_THAT(errors_of_recomputed(strategy, /*static_graph=*/false, state),
                Each(HasSubstr("set static_graph = true")));
  }
}

TEST(TrainerStaticGraph, IsRefusedByOtherStrategies) {
  const StrategyOptions fixed{.static_graph = true};
  for (const char* strategy : {"dp", "pipeline"}) {
    EXPECT_THAT(message_of<ConfigError>([&] { make_strategy(strategy, group_of_one(), fixed); }),
                HasSubstr(str("strategy ", strategy, ": static_graph belongs to ddp and zero1")));
  }
}

}  // namespace
}  // namespace lockstep::train
