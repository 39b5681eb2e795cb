// What the wrapper says of strides that differ from those of a gradient, and of ranks that do not
// make the same steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <lockstep/core/error.h>
#include <lockstep/parallel/distributed_data_parallel.h>
#include <tests/parallel/layers.h>
#include <tests/support/captured_log.h>
#include <tests/support/groups.h>

namespace lockstep {
namespace {

using testing::AllOf;
using testing::Each;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_support::no_errors;
using testing_support::run_group;
using testing_support::zero_grad;

// Gradients arrive from the last layer to the first.
TEST(DdpStrides, ThatChangedAreToldOfOneParameterOnEachRank) {
  const testing_support::CapturedLog log;
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    const auto convolution = [] {
      return torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 2, 3).bias(false));
    };
    torch::nn::Sequential net(convolution(), convolution());
    DistributedDataParallel ddp(net, group);
    for (torch::Tensor& weight : net->parameters()) {
      weight.set_data(weight.contiguous(torch::MemoryFormat::ChannelsLast));
    }
    for (int step = 0; step < 2; ++step) {
      zero_grad(*net);
      ddp.forward(torch::ones({1, 2, 6, 6})).sum().backward();
    }
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
  EXPECT_EQ(log.lines().size(), 2U);
  EXPECT_THAT(
      log.lines(),
      Each(EndsWith("DistributedDataParallel: parameter '1.weight' has strides "
                    "[18, 1, 6, 2] and had [18, 9, 3, 1] when it was wrapped, so that every "
                    "gradient is copied slowly; change the memory format first, then wrap "
                    "the module")));
}

// Autograd gives such a parameter a gradient without gaps.
TEST(DdpStrides, OfAParameterWithGapsAreNotTold) {
  const testing_support::CapturedLog log;
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    torch::nn::Linear net(torch::nn::LinearOptions(3, 2).bias(false));
    DistributedDataParallel ddp(net, group);
    net->weight.set_data(torch::ones({2, 4}).slice(1, 0, 3));
    ddp.forward(torch::full({1, 3}, group.rank() + 1.0F)).sum().backward();
    EXPECT_TRUE(net->weight.grad().equal(torch::full({2, 3}, 1.5F)));
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
  EXPECT_THAT(log.lines(), IsEmpty());
}

}  // namespace
}  // namespace lockstep
