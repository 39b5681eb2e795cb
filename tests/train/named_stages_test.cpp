// The names of the cuts between stages, what stages may share, and the criterion of the last one.
#include <lockstep/train/strategies/named_stages.h>

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <lockstep/core/error.h>
#include <lockstep/parallel/pipeline/balance.h>
#include <lockstep/train/strategies/stage_criterion.h>
#include <tests/support/messages.h>

namespace lockstep::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_support::message_of;

// A stage with parameters of these names.
NamedStage stage_with(const std::vector<std::string>& names) {
  NamedStage stage{.module = torch::nn::Tanh()};
  for (const std::string& name : names) {
    stage.parameters.emplace_back(name, torch::zeros({2}, torch::requires_grad()));
  }
  return stage;
}

TEST(NamesOfCuts, AreTheLargestBlocksThatEndThere) {
  EXPECT_THAT(names_of_cuts({stage_with({"conv1.weight", "layer1.0.weight", "layer1.1.weight"}),
                             stage_with({"layer2.0.conv.weight", "layer2.0.conv.bias"}),
                             stage_with({"layer2.1.conv.weight", "fc.weight"})}),
              ElementsAre("layer1", "layer2.0"));
  EXPECT_THAT(names_of_cuts({stage_with({"fc.weight"})}), IsEmpty());
  EXPECT_THAT(names_of_cuts({stage_with({"layer1.weight"}), stage_with({"layer10.weight"})}),
              ElementsAre("layer1"));
  EXPECT_THAT(names_of_cuts({stage_with({"fc.weight"}), stage_with({"fc.bias"})}),
              ElementsAre("fc.weight"));
}

// A later stage has the tied weight, too, so that it does not end where the first one does.
TEST(NamesOfCuts, PassOverParametersThatLaterStagesHave) {
  EXPECT_THAT(names_of_cuts({stage_with({"body.weight", "words.weight"}), stage_with({}),
                             stage_with({"words.weight"})}),
              ElementsAre("body", "(no parameters)"));
  EXPECT_THAT(names_of_cuts({stage_with({"words.weight"}), stage_with({"words.weight"})}),
              ElementsAre("(no parameters)"));
}

TEST(NamedStages, ShareParametersThatAreTrained) {
  const NamedStage first = stage_with({"words.weight"});
  EXPECT_TRUE(share_trainable_parameters({first, stage_with({"fc.weight"}), first}));
  EXPECT_FALSE(share_trainable_parameters({first, stage_with({"words.weight"})}))
      << "another tensor of this name";
  first.parameters[0].second.set_requires_grad(false);
  EXPECT_THAT(first.trainable(), IsEmpty());
  EXPECT_FALSE(share_trainable_parameters({first, first}));
}

TEST(NamedStages, ShareBuffersOnlyOnOneRank) {
  NamedStage first = stage_with({}), second = stage_with({});
  first.buffers = {{"count", torch::zeros({})}, {"mean", torch::zeros({2})}};
  second.buffers = {{"count", torch::zeros({})}, first.buffers[1]};
  const std::vector<NamedStage> stages = {first, stage_with({}), second};
  refuse_to_share_buffers(stages, {0, 1, 0}, "hybrid");
  EXPECT_EQ(message_of<ConfigError>([&] { refuse_to_share_buffers(stages, {0, 1, 2}, "hybrid"); }),
            "strategy hybrid: stages 0 and 2 are on different ranks and share the buffer 'mean', "
            "of which each rank would update a copy of its own; give each stage a module of its "
            "own for it");
}

TEST(NamedStages, AreAsManyAsTheTaskWasAskedFor) {
  const torch::nn::Sequential net(torch::nn::Tanh(), torch::nn::Linear(3, 2));
  ClassificationTask task(net, ClassificationLoss::kCrossEntropy,
                          [net](int) { return pipeline::stage_modules(split(net, {1, 1})); });
  EXPECT_EQ(message_of<ConfigError>(
                [&] { named_stages(task, task.module(), 1, StepSettings(), "hybrid"); }),
            "strategy hybrid: the task was asked for 1 stage and gave 2");
  const auto stages = named_stages(task, task.module(), 2, StepSettings(), "hybrid");
  ASSERT_EQ(stages.size(), 2U);
  EXPECT_THAT(stages[0].parameters, IsEmpty());
  ASSERT_EQ(stages[1].parameters.size(), 2U);
  EXPECT_EQ(stages[1].parameters[0].first, "1.weight") << "by its name in the whole model";
  EXPECT_EQ(stages[1].parameters[1].first, "1.bias");
}

// A batch norm without an affine map has buffers, but no parameters.
torch::nn::Sequential net_with_buffers() {
  const auto norm = torch::nn::BatchNormOptions(3).affine(false);
  return torch::nn::Sequential(torch::nn::Linear(3, 3), torch::nn::BatchNorm1d(norm),
                               torch::nn::Linear(3, 2));
}

std::vector<torch::nn::Sequential> layers_of(const torch::nn::Sequential& net) {
  return split(net, {1, 1, 1});
}

TEST(NamedStages, HaveAllParametersAndBuffersOfTheModelAndNoOthers) {
  const torch::nn::Sequential net = net_with_buffers();
  const auto own = layers_of(net), foreign = layers_of(net_with_buffers());
  struct Cut {
    std::vector<torch::nn::Sequential> stages;
    std::string message;
  };
  const Cut cuts[] = {
      {{own[1], own[2]}, "none of the 2 stages has '0.weight' of the model"},
      {{own[0], own[2]}, "none of the 2 stages has '1.running_mean' of the model"},
      {{own[0], own[1]}, "none of the 2 stages has '2.weight' of the model"},
      {{own[0], own[1], foreign[2]}, "stage 2 has '2.weight', which the model does not have; "},
      {{own[0], foreign[1], own[2]},
       "stage 1 has '1.running_mean', which the model does not have; "},
      {own, "nothing was thrown"},
      {{own[2], own[1], own[0]}, "nothing was thrown"},
  };
  for (const Cut& cut : cuts) {
    ClassificationTask task(net, ClassificationLoss::kCrossEntropy,
                            [&](int) { return pipeline::stage_modules(cut.stages); });
    EXPECT_THAT(message_of<ConfigError>([&] {
                  named_stages(task, task.module(), static_cast<int>(cut.stages.size()),
                               StepSettings(), "hybrid");
                }),
                HasSubstr(cut.message));
  }
  ClassificationTask whole(net, ClassificationLoss::kCrossEntropy,
                           [&](int) { return pipeline::stage_modules(own); });
  const auto stages = named_stages(whole, whole.module(), 3, StepSettings(), "hybrid");
  EXPECT_THAT(stages[1].parameters, IsEmpty());
  EXPECT_THAT(stages[2].buffers, IsEmpty());
  std::vector<std::string> names;
  for (const auto& [name, tensor] : stages[1].buffers) names.push_back(name);
  EXPECT_THAT(names, ElementsAre("1.running_mean", "1.running_var", "1.num_batches_tracked"));
}

// With 16 bits a stage is wrapped, which must not hide what the stage says about its backward.
TEST(NamedStages, ComputeInThePrecisionOfTheRunAndKeepTheirBackward) {
  const torch::nn::Sequential net(torch::nn::Linear(3, 3), torch::nn::Linear(3, 2));
  ClassificationTask task(net, ClassificationLoss::kCrossEntropy, [net](int) {
    auto stages = pipeline::stage_modules(split(net, {1, 1}));
    const pipeline::StageModule first = stages[0];
    stages[0] = pipeline::StageModule(
        first.module().shared_from_this(),
        [first](const Tensors& inputs) { return first.forward(inputs); },
        /*has_whole_backward=*/true);
    return stages;
  });
  for (const auto& [precision, type] :
       {std::pair(Precision::k32, torch::kFloat32), std::pair(Precision::kBf16, torch::kBFloat16),
        std::pair(Precision::kFp16, torch::kHalf)}) {
    const auto stages = named_stages(task, task.module(), 2, {.precision = precision}, "hybrid");
    ASSERT_EQ(stages.size(), 2U);
    EXPECT_TRUE(stages[0].module.has_whole_backward()) << type;
    EXPECT_FALSE(stages[1].module.has_whole_backward()) << type;
    const Tensors outputs = stages[0].module.forward({torch::ones({4, 3})});
    EXPECT_EQ(outputs.at(0).scalar_type(), type);
    EXPECT_EQ(stages[1].module.forward(outputs).at(0).scalar_type(), type);
    EXPECT_EQ(torch::ones({2, 2}).mm(torch::ones({2, 2})).scalar_type(), torch::kFloat32)
        << "autocast ends with the stage";
    EXPECT_TRUE(stages[1].module.module().parameters().at(0).is_same(net->parameters().at(2)));
  }
}

// Micro-batches of 3 and 1 samples. The call without a graph is that of a forward that will be
// repeated.
TEST(StageCriterion, HasTheMeanOverSamplesAndWeighsOnlyTheLoss) {
  const torch::nn::Sequential net(torch::nn::Linear(2, 2));
  const ClassificationTask task(net, ClassificationLoss::kCrossEntropy);
  const torch::Tensor outputs =
      torch::tensor({{1.0, 0.5}, {0.0, 2.0}, {-1.0, 1.0}, {3.0, 0.0}}, torch::kFloat32)
          .requires_grad_();
  const torch::Tensor labels = torch::tensor({0, 1, 0, 1});
  const GradScaler scaler({.init_scale = 8});
  const StepSettings settings{.scaler = &scaler};
  const StepPart part{.weight = 0.25};
  StageCriterion criterion(task, settings, part, 4);
  {
    const torch::NoGradGuard no_grad;
    criterion(outputs.narrow(0, 0, 3), labels.narrow(0, 0, 3));
  }
  const torch::Tensor first = criterion(outputs.narrow(0, 0, 3), labels.narrow(0, 0, 3));
  const torch::Tensor second = criterion(outputs.narrow(0, 3, 1), labels.narrow(0, 3, 1));
  const torch::Tensor losses =
      -outputs.log_softmax(1).gather(1, labels.unsqueeze(1)).squeeze(1).detach();
  EXPECT_NEAR(criterion.mean().item<double>(), losses.mean().item<double>(), 1e-5);
  EXPECT_FALSE(criterion.mean().requires_grad());
  EXPECT_NEAR(first.item<double>(), losses.narrow(0, 0, 3).mean().item<double>() * 0.25 * 8, 1e-5);
  EXPECT_NEAR(second.item<double>(), losses[3].item<double>() * 0.25 * 8, 1e-5);
  EXPECT_TRUE(first.requires_grad());
}

}  // namespace
}  // namespace lockstep::train
