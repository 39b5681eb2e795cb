#include <lockstep/parallel/model_parallel.h>

#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/cuda.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <lockstep/core/error.h>
#include <lockstep/models/resnet_stages.h>
#include <tests/parallel/weight_on_meta.h>
#include <tests/support/messages.h>

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_support::message_of;

const torch::Device kOnCpu(torch::kCPU);

torch::Tensor classification_loss(const torch::Tensor& logits, const torch::Tensor& labels) {
  return torch::cross_entropy_loss(logits, labels);
}

// The model is split as in PyTorch's model-parallel tutorial.
TEST(ModelParallel, IsResNet50BitForBit) {
  torch::manual_seed(3);
  ResNet whole = resnet50(ResNetStem::kImageNet, 10);
  ResNet net(std::dynamic_pointer_cast<ResNetImpl>(whole->clone()));
  const auto stages = resnet_stages(net, {"layer2"});
  ModelParallel split({stages[0], stages[1]}, {kOnCpu, kOnCpu});
  const auto images = torch::randn({3, 3, 64, 64});
  const auto labels = torch::tensor({1, 4, 7});
  const torch::Tensor expected = whole->forward(images);
  const torch::Tensor got = split.forward(images);
  EXPECT_TRUE(got.equal(expected));
  classification_loss(expected, labels).backward();
  classification_loss(got, labels).backward();
  const auto expected_parameters = whole->named_parameters();
  for (const auto& item : net->named_parameters()) {
    EXPECT_TRUE(item.value().grad().equal(expected_parameters[item.key()].grad())) << item.key();
  }
  const auto expected_buffers = whole->named_buffers();
  for (const auto& item : net->named_buffers()) {
    EXPECT_TRUE(item.value().equal(expected_buffers[item.key()])) << item.key();
  }
  EXPECT_EQ(split.parameters().size(), net->parameters().size());
}

TEST(ModelParallel, PassesSeveralTensorsOn) {
  torch::nn::Linear linear(4, 4);
  const pipeline::StageModule fork(linear.ptr(), [linear](const Tensors& x) mutable -> Tensors {
    return {linear->forward(x[0]), x[0]};
  });
  const pipeline::StageModule sum(linear.ptr(),
                                  [](const Tensors& x) -> Tensors { return {x[0] + x[1]}; });
  const auto x = torch::randn({2, 4});
  ModelParallel both({fork, sum}, {kOnCpu, kOnCpu});
  EXPECT_TRUE(both.forward(x).equal(linear->forward(x) + x));
  ModelParallel first({fork}, {kOnCpu});
  EXPECT_EQ(first.forward_all({x}).size(), 2U);
  EXPECT_THAT(message_of<ConfigError>([&] { first.forward(x); }),
              HasSubstr("the last stage returns 2 tensors"));
}

// Moving the second stage also moves the weight that the first stage shares with it.
TEST(ModelParallel, RefusesAParameterOnTwoDevices) {
  const testing_support::WeightOnMeta shared;
  EXPECT_THAT(message_of<ConfigError>(
                  [&] { ModelParallel({shared, shared}, {kOnCpu, torch::Device(torch::kMeta)}); }),
              HasSubstr("ModelParallel: parameter 'weight' of stage 0 belongs to a stage on meta, "
                        "too; stages on different devices cannot share a parameter"));
  EXPECT_NO_THROW(ModelParallel({shared, shared}, {kOnCpu, kOnCpu}));
  EXPECT_NO_THROW(ModelParallel({shared, testing_support::WeightOnMeta()},
                                {kOnCpu, torch::Device(torch::kMeta)}));
}

struct CounterImpl : torch::nn::Module {
  explicit CounterImpl(torch::Device device) { register_buffer("count", torch::ones({2}, device)); }
};

// Creates its counter anew on each device, because LibTorch's to() cannot move a buffer to "meta".
struct BufferOnMetaImpl : torch::nn::Module {
  BufferOnMetaImpl() { register_module("counter", std::make_shared<CounterImpl>(kOnCpu)); }
  torch::Tensor forward(const torch::Tensor& x) { return x; }
  using torch::nn::Module::to;
  void to(torch::Device device, bool /*non_blocking*/) override {
    replace_module("counter", std::make_shared<CounterImpl>(device));
  }
};
TORCH_MODULE(BufferOnMeta);

TEST(ModelParallel, RefusesABufferOnTwoDevices) {
  const BufferOnMeta shared;
  EXPECT_EQ(
      message_of<ConfigError>(
          [&] { ModelParallel({shared, shared}, {kOnCpu, torch::Device(torch::kMeta)}); }),
      "ModelParallel: buffer 'counter.count' of stage 0 belongs to a stage on meta, too; stages on "
      "different devices cannot share a buffer");
  EXPECT_NO_THROW(ModelParallel({shared, shared}, {kOnCpu, kOnCpu}));
  // Its buffers are registered but undefined.
  const torch::nn::BatchNorm2d without(
      torch::nn::BatchNorm2dOptions(2).affine(false).track_running_stats(false));
  EXPECT_NO_THROW(ModelParallel({without, without}, {kOnCpu, torch::Device(torch::kMeta)}));
}

TEST(ModelParallel, RefusesInOneLineAGpuThatIsNotThere) {
  if (torch::cuda::is_available()) GTEST_SKIP() << "there is a GPU";
  const torch::nn::Linear linear(4, 4);
  EXPECT_THAT(message_of<ConfigError>(
                  [&] { ModelParallel({linear, linear}, {kOnCpu, torch::Device("cuda:1")}); }),
              AllOf(testing::StartsWith("ModelParallel: cuda:1 "), HasSubstr("use "),
                    testing::Not(HasSubstr("\n"))));
  EXPECT_TRUE(linear->weight.is_cpu());
}

TEST(ModelParallel, NeedsADeviceForEachStage) {
  const torch::nn::Linear linear(4, 4);
  EXPECT_THAT(message_of<ConfigError>([&] { ModelParallel({linear}, {kOnCpu, kOnCpu}); }),
              HasSubstr("a device for each, got 1 and 2"));
  EXPECT_THROW(ModelParallel({}, {}), ConfigError);
}

}  // namespace
}  // namespace lockstep
