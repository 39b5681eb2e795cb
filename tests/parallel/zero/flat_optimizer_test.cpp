// Optimizer on the flat memory that DistributedDataParallel allocates for parameters and gradients.
#include <set>

#include <gtest/gtest.h>

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <lockstep/optim/optimizer.h>
#include <lockstep/parallel/distributed_data_parallel.h>
#include <tests/support/groups.h>

namespace lockstep {
namespace {

// Sizes that are not multiples of 64 bytes.
torch::nn::Sequential make_net() {
  const torch::NoGradGuard no_grad;
  torch::nn::Sequential net(torch::nn::Conv2d(3, 5, 3), torch::nn::Flatten(),
                            torch::nn::Linear(45, 21), torch::nn::Tanh(), torch::nn::Linear(21, 7));
  for (auto& parameter : net->parameters()) {
    const auto numbers = torch::arange(parameter.numel(), torch::kFloat64) * 12.9;
    parameter.copy_(numbers.sin().mul(0.2).view(parameter.sizes()));
  }
  auto& weight = net->ptr<torch::nn::Conv2dImpl>(0)->weight;
  weight.set_data(weight.contiguous(torch::MemoryFormat::ChannelsLast));
  return net;
}

struct Result {
  std::vector<torch::Tensor> parameters;
  std::size_t pieces_of_state;  // separate tensors of optimizer state
};

Result train(ProcessGroup group, ParameterMemory memory) {
  auto net = make_net();
  DistributedDataParallel ddp(net, group, {.parameter_memory = memory});
  Optimizer optimizer(*net, AdamWOptions{.lr = 0.01});
  for (int step = 0; step < 6; ++step) {  // the buckets are rebuilt after the first step
    const auto numbers =
        torch::arange(4 * 3 * 5 * 5, torch::kFloat32) * 0.37 + group.rank() * 11 + step;
    optimizer.zero_grad();
    ddp.forward(numbers.cos().view({4, 3, 5, 5})).square().mean().backward();
    optimizer.step();
  }
  std::set<const void*> pieces;
  for (const auto& [name, tensor] : optimizer.state()) {
    if (name.starts_with("exp_avg.")) pieces.insert(tensor.storage().data());
  }
  return {net->parameters(), pieces.size()};
}

TEST(FlatOptimizer, StepsABucketAtOnceWithTheSameBits) {
  const auto errors = testing_support::run_group(2, "shm", [](ProcessGroup group) {
    const Result flat = train(group, ParameterMemory::kFlat);
    const Result single = train(group, ParameterMemory::kAsIs);
    for (std::size_t i = 0; i < single.parameters.size(); ++i) {
      EXPECT_TRUE(flat.parameters[i].equal(single.parameters[i])) << i;
    }
    EXPECT_EQ(flat.pieces_of_state, 1U);
    EXPECT_EQ(single.pieces_of_state, single.parameters.size());
  });
  for (const auto& error : errors) EXPECT_EQ(error, "");
}

}  // namespace
}  // namespace lockstep
