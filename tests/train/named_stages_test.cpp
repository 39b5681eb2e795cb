// The names of the cuts between stages, and what stages may share.
#include <lockstep/train/strategies/named_stages.h>

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>

#include <lockstep/core/error.h>
#include <tests/support/messages.h>

namespace lockstep::train {
namespace {

using testing::ElementsAre;
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

}  // namespace
}  // namespace lockstep::train
