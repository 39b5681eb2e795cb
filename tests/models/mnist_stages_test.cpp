#include <lockstep/models/mnist_stages.h>

#include <gtest/gtest.h>

#include <map>
#include <string>

#include <lockstep/core/error.h>
#include <tests/support/messages.h>

namespace lockstep {
namespace {

using testing_support::message_of;

torch::Tensor through(std::vector<MnistStage>& stages, torch::Tensor x) {
  for (MnistStage& stage : stages) x = stage->forward(x);
  return x;
}

// Dropout is included: the stages draw the same random numbers in the same order.
TEST(MnistStages, ComputeWhatTheNetComputes) {
  for (const bool fused : {true, false}) {
    for (const bool training : {true, false}) {
      for (int count = 1; count <= MnistNetImpl::kLayers; ++count) {
        MnistNet net(MnistNetOptions{.fused_kernels = fused});
        auto stages = mnist_stages(net, count);
        ASSERT_EQ(stages.size(), static_cast<std::size_t>(count));
        net->train(training);
        for (MnistStage& stage : stages) stage->train(training);
        const auto images = torch::randn({3, 1, 28, 28});
        const torch::NoGradGuard no_grad;
        torch::manual_seed(5);
        const auto expected = net->forward(images);
        torch::manual_seed(5);
        EXPECT_TRUE(through(stages, images).equal(expected))
            << count << " stages, fused " << fused << ", training " << training;
      }
    }
  }
}

// The two convolutions are custom autograd functions when our kernel is enabled.
TEST(MnistStages, SayWhichBackwardsAreWhole) {
  for (const bool fused : {true, false}) {
    const MnistNet net(MnistNetOptions{.fused_kernels = fused});
    for (int count = 1; count <= MnistNetImpl::kLayers; ++count) {
      const auto stages = mnist_stages(net, count);
      for (int stage = 0; stage < count; ++stage) {
        EXPECT_EQ(stages[static_cast<std::size_t>(stage)]->has_whole_backward(), fused && stage < 2)
            << "stage " << stage << " of " << count << ", fused " << fused;
      }
    }
  }
}

// A pipeline switches its stages, and not the net, between training and evaluation.
TEST(MnistStages, DropOutInTheirOwnMode) {
  MnistNet net;
  auto stages = mnist_stages(net, 3);
  net->train(true);
  for (MnistStage& stage : stages) stage->train(false);
  const auto images = torch::randn({3, 1, 28, 28});
  const torch::NoGradGuard no_grad;
  EXPECT_TRUE(through(stages, images).equal(through(stages, images)));
}

TEST(MnistStages, HaveTheNetsParametersUnderItsNames) {
  const MnistNet net;
  std::map<std::string, torch::Tensor> whole;
  for (const auto& item : net->named_parameters()) whole.emplace(item.key(), item.value());
  std::size_t seen = 0;
  for (const MnistStage& stage : mnist_stages(net, 3)) {
    for (const auto& item : stage->named_parameters()) {
      ++seen;
      ASSERT_TRUE(whole.contains(item.key())) << item.key();
      EXPECT_TRUE(item.value().is_same(whole.at(item.key()))) << item.key();
    }
  }
  EXPECT_EQ(seen, whole.size());
}

TEST(MnistStages, AreAtMostTheLayers) {
  const MnistNet net;
  for (const int count : {0, 5}) {
    EXPECT_EQ(
        message_of<ConfigError>([&] { mnist_stages(net, count); }),
        "mnist_stages: the number of stages must be from 1 to 4, the layers of the net, got " +
            std::to_string(count));
  }
}

}  // namespace
}  // namespace lockstep
