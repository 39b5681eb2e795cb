#include <lockstep/models/resnet_stages.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include <torch/nn/modules/batchnorm.h>

#include <lockstep/core/error.h>
#include <tests/support/messages.h>

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_support::message_of;

using Cuts = std::vector<std::string>;

torch::Tensor chained(std::vector<ResNetStage>& stages, torch::Tensor x) {
  for (ResNetStage& stage : stages) x = stage->forward(x);
  return x;
}

ResNet small_net(ResNetBlock block, ResNetStem stem) {
  return ResNet(
      ResNetOptions{.block = block, .layers = {1, 2, 3, 1}, .stem = stem, .num_classes = 7});
}

TEST(ResNetStages, ComputeWhatTheNetComputes) {
  for (const auto block : {ResNetBlock::kBasic, ResNetBlock::kBottleneck}) {
    for (const auto stem : {ResNetStem::kCifar, ResNetStem::kImageNet}) {
      for (const Cuts& cuts : {Cuts{}, Cuts{"layer2"}, Cuts{"layer1.0", "layer2.0", "layer3.1"},
                               Cuts{"layer3.0", "layer3.1", "layer4"}}) {
        ResNet net = small_net(block, stem);
        const auto images = torch::randn({2, 3, 32, 32});
        auto stages = resnet_stages(net, cuts);
        ASSERT_EQ(stages.size(), cuts.size() + 1);
        const torch::NoGradGuard no_grad;
        net->eval();
        EXPECT_TRUE(chained(stages, images).equal(net->forward(images))) << join(cuts);
      }
    }
  }
}

TEST(ResNetStages, HaveTheNetsParametersUnderItsNames) {
  const ResNet net = small_net(ResNetBlock::kBottleneck, ResNetStem::kImageNet);
  std::map<std::string, torch::Tensor> whole;
  for (const auto& item : net->named_parameters()) whole.emplace(item.key(), item.value());
  for (const auto& item : net->named_buffers()) whole.emplace(item.key(), item.value());
  std::size_t seen = 0;
  for (const ResNetStage& stage : resnet_stages(net, {"layer1", "layer3.0", "layer3.1"})) {
    for (const auto& tensors : {stage->named_parameters(), stage->named_buffers()}) {
      for (const auto& item : tensors) {
        ++seen;
        ASSERT_TRUE(whole.contains(item.key())) << item.key();
        EXPECT_TRUE(item.value().is_same(whole.at(item.key()))) << item.key();
      }
    }
  }
  EXPECT_EQ(seen, whole.size());
}

TEST(ResNetStages, FollowTheNetsMode) {
  ResNet net = small_net(ResNetBlock::kBasic, ResNetStem::kCifar);
  const auto stages = resnet_stages(net, {"layer3.1"});
  net->eval();
  for (const ResNetStage& stage : stages) {
    for (const auto& module : stage->modules(/*include_self=*/false)) {
      if (module->as<torch::nn::BatchNorm2dImpl>()) {
        EXPECT_FALSE(module->is_training());
      }
    }
  }
}

TEST(ResNetStages, AreCutWhereTheTutorialCutsThem) {
  const ResNet net = resnet50(ResNetStem::kImageNet, 1000);
  EXPECT_EQ(net->options().layers, (std::array<std::int64_t, 4>{3, 4, 6, 3}));
  EXPECT_THAT(resnet_cuts(net, 1), IsEmpty());
  EXPECT_THAT(resnet_cuts(net, 2), ElementsAre("layer2"));
  EXPECT_THAT(resnet_cuts(net, 4), ElementsAre("layer2.0", "layer3.0", "layer3.4"));
  EXPECT_EQ(resnet_cuts(net, 16).size(), 15U);
  EXPECT_EQ(resnet_stages(net, resnet_cuts(net, 16)).size(), 16U);
}

// The names of all blocks are cuts that divide the net into as many stages, and the last block of a
// layer has the layer's name.
TEST(ResNetStages, AreCutBehindEachBlock) {
  const ResNet net = small_net(ResNetBlock::kBasic, ResNetStem::kCifar);
  const Cuts blocks = resnet_blocks(net);
  EXPECT_THAT(blocks, ElementsAre("layer1", "layer2.0", "layer2", "layer3.0", "layer3.1", "layer3",
                                  "layer4"));
  EXPECT_EQ(resnet_cuts(net, 7), Cuts(blocks.begin(), blocks.end() - 1));
  EXPECT_THAT(resnet_cuts(net, 3), ElementsAre("layer2.0", "layer3.0"));
  for (const auto& [cut, first] : {std::pair{"layer2.1", "layer2"}, {"layer3.2", "layer3"}}) {
    const auto names = [&net](const char* where) {
      Cuts found;
      for (const ResNetStage& stage : resnet_stages(net, {where})) {
        for (const auto& item : stage->named_parameters()) found.push_back(item.key());
        found.emplace_back("the end of a stage");
      }
      return found;
    };
    EXPECT_EQ(names(cut), names(first));
  }
}

TEST(ResNetStages, RefuseCutsThatCannotBe) {
  const ResNet net = small_net(ResNetBlock::kBasic, ResNetStem::kCifar);
  for (const char* cut : {"layer0", "layer5", "layer", "conv1", "fc", "", "layer2.2", "layer2.x",
                          "layer2.", "layer2.-1", "layer2.1.conv1", "layer+2", "layer 2", "layer2 ",
                          "layer-1", "layer2.99999999999999999999", "xlayer2"}) {
    EXPECT_THAT(message_of<ConfigError>([&] { resnet_stages(net, {cut}); }),
                HasSubstr("the net has no '" + std::string(cut) + "'"));
  }
  EXPECT_THAT(message_of<ConfigError>([&] { resnet_stages(net, Cuts{"layer3", "layer2"}); }),
              HasSubstr("in the order of the forward, got layer3, layer2"));
  EXPECT_THROW(resnet_stages(net, Cuts{"layer1", "layer1.0"}), ConfigError);
  EXPECT_EQ(message_of<ConfigError>([&] { resnet_stages(net, {"layer9"}); }),
            "resnet_stages: the net has no 'layer9'; expected a layer or a block of one, such as "
            "layer2 or layer3.1");
  for (const int count : {0, 8}) {
    EXPECT_EQ(message_of<ConfigError>([&] { resnet_cuts(net, count); }),
              "resnet_cuts: the number of stages must be from 1 to 7, the blocks of the net, got " +
                  std::to_string(count));
  }
}

}  // namespace
}  // namespace lockstep
