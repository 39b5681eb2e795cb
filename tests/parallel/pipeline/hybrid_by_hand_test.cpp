// Several pipelines of ranks with averaged gradients in a hand-written training loop.
// docs/pipelines.md quotes this code. Training ends with the weights of one process, and a failure
// of one rank ends all of them.
#include <functional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/Parallel.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <lockstep/optim/clip_grad.h>
#include <lockstep/parallel/device_mesh.h>
#include <lockstep/parallel/pipeline/balance.h>
#include <lockstep/parallel/pipeline/distributed_pipeline.h>
#include <tests/support/groups.h>
#include <tests/support/immovable.h>
#include <tests/support/survivors.h>

namespace lockstep {
namespace {

using testing::AnyOf;
using testing::Each;
using testing::HasSubstr;

constexpr double kHybridRate = 0.2;
constexpr double kHybridNorm = 0.05;
constexpr int kHybridSteps = 3;

struct HybridBatch {
  torch::Tensor x, y;
};

using HybridCriterion = std::function<torch::Tensor(const torch::Tensor&, const torch::Tensor&)>;

torch::nn::Sequential hybrid_net() {
  namespace nn = torch::nn;
  nn::Sequential net(nn::Linear(6, 16), nn::Tanh(), nn::Linear(16, 8), nn::Tanh(),
                     nn::Linear(8, 4));
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& parameter : net->parameters()) {
    parameter.copy_(torch::arange(parameter.numel()).mul(0.7).sin().mul(0.4).view_as(parameter));
  }
  return net;
}

// Twelve samples, which are the same on every rank.
HybridBatch hybrid_batch(int step) {
  const torch::Tensor x = torch::arange(12 * 6).add(step).mul(0.9).cos().view({12, 6});
  return {x, torch::arange(12).add(step).remainder(4)};
}

torch::Tensor hybrid_loss(const torch::Tensor& output, const torch::Tensor& target) {
  return torch::cross_entropy_loss(output, target);
}

// Gives the batch of a step for one of a number of pipelines.
using HybridBatches = std::function<HybridBatch(int step, int share, int shares)>;

// Trains this rank's stage of `net` in its pipeline of `mesh`.
void train_hybrid_stage(lockstep::DeviceMesh& mesh, torch::nn::Sequential net, torch::Device device,
                        const HybridBatches& batch_of, const HybridCriterion& criterion) {
  lockstep::ProcessGroup& row = mesh.group("pipeline");   // the ranks of this pipeline
  lockstep::ProcessGroup& replicas = mesh.group("data");  // the ranks with this rank's stage
  torch::nn::Sequential stage =
      lockstep::split(net, {3, 2})[static_cast<std::size_t>(mesh.local_rank("pipeline"))];

  lockstep::PipelineOptions options{.micro_batches = 3};
  options.reduce = [&](int, const lockstep::Tensors& parameters) {
    lockstep::Tensors gradients;
    for (const torch::Tensor& parameter : parameters) {
      if (parameter.grad().defined()) gradients.push_back(parameter.grad());
    }
    replicas.all_reduce_coalesced(gradients, lockstep::ReduceOp::kAverage);
  };
  lockstep::DistributedPipeline pipe({stage}, row, device, options);
  torch::optim::SGD optimizer(pipe.parameters(), kHybridRate);

  lockstep::Tensors state;  // all replicas start with the first one's weights and buffers
  for (const torch::Tensor& tensor : stage->parameters()) state.push_back(tensor.detach());
  for (const torch::Tensor& tensor : stage->buffers()) state.push_back(tensor.detach());
  replicas.broadcast_coalesced(state);

  for (int step = 0; step < kHybridSteps; ++step) {
    const auto batch = batch_of(step, mesh.local_rank("data"), mesh.size("data"));
    optimizer.zero_grad();
    pipe.step(criterion, batch.x, batch.y);  // calls reduce for each stage
    lockstep::clip_grad_norm_(pipe.parameters(), kHybridNorm, row);
    optimizer.step();
  }
}

// Trains the stages of `net`, which every rank has in full, in pipelines of two ranks.
void train_by_hand(ProcessGroup group, const torch::nn::Sequential& net, torch::Device device,
                   const HybridBatches& batch_of, const HybridCriterion& criterion) {
  lockstep::DeviceMesh mesh(group, {{"data", group.size() / 2}, {"pipeline", 2}});
  try {
    train_hybrid_stage(mesh, net, device, batch_of, criterion);
  } catch (const std::exception& error) {
    // Abort every group, because a peer may wait for this rank in any of them.
    for (lockstep::ProcessGroup* each :
         {&mesh.group("pipeline"), &mesh.group("data"), &mesh.all()}) {
      each->abort(error.what());
    }
    throw;
  }
}

HybridBatch share_of(int step, int share, int shares) {
  const HybridBatch whole = hybrid_batch(step);
  return {whole.x.chunk(shares)[static_cast<std::size_t>(share)],
          whole.y.chunk(shares)[static_cast<std::size_t>(share)]};
}

TEST(HybridByHand, EndsWithTheWeightsOfOneProcess) {
  at::set_num_threads(1);
  torch::nn::Sequential alone = hybrid_net();
  torch::optim::SGD optimizer(alone->parameters(), kHybridRate);
  for (int step = 0; step < kHybridSteps; ++step) {
    const HybridBatch batch = hybrid_batch(step);
    optimizer.zero_grad();
    hybrid_loss(alone->forward(batch.x), batch.y).backward();
    clip_grad_norm_(alone->parameters(), kHybridNorm);
    optimizer.step();
  }
  for (const char* backend : {"shm", "gloo"}) {
    const auto errors = testing_support::run_group(4, backend, [&](ProcessGroup group) {
      at::set_num_threads(1);
      torch::nn::Sequential net = hybrid_net();
      if (group.rank() > 1) {  // only the first pipeline's weights count
        const torch::NoGradGuard no_grad;
        for (torch::Tensor& parameter : net->parameters()) parameter.zero_();
      }
      train_by_hand(group, net, torch::kCPU, share_of, hybrid_loss);
      const auto got = net->parameters(), expected = alone->parameters();
      // The first stage has two linear layers, and so four of the six parameters.
      const bool first = group.rank() % 2 == 0;
      for (std::size_t i = first ? 0 : 4; i < (first ? 4U : 6U); ++i) {
        if (!got[i].allclose(expected[i], 1e-4, 1e-6)) throw Error(str("parameter ", i));
      }
    });
    EXPECT_EQ(errors, testing_support::no_errors(4)) << backend;
  }
}

// The last rank of the second pipeline cannot move its stage, before any pipeline exists. The rank
// with the same stage waits for it in the broadcast of the weights.
TEST(HybridByHand, EndsOnAllRanksWhereOneCannotMakeItsStage) {
  testing_support::Survivors all(4);
  const Clock::time_point begin = Clock::now();
  const auto errors = testing_support::run_group(4, "shm", [&](ProcessGroup group) {
    at::set_num_threads(1);
    torch::nn::Sequential net = hybrid_net();
    if (group.rank() == 3) {
      net = torch::nn::Sequential(torch::nn::Linear(6, 16), torch::nn::Tanh(), torch::nn::Tanh(),
                                  testing_support::Immovable(), torch::nn::Tanh());
    }
    try {
      train_by_hand(group, net, torch::kCPU, share_of, hybrid_loss);
    } catch (const Error&) {
      all.wait_for_all();  // stay, so that no rank fails only because another one has left
      throw;
    }
  });
  EXPECT_LT(seconds_since(begin), 25);  // an abandoned wait would take thirty seconds
  // Rank 0 may first hear that rank 1, which was told the reason, left their pipeline.
  EXPECT_THAT(errors, Each(AnyOf(HasSubstr("there is no room on the device"),
                                 HasSubstr("rank 1 left the group"))));
  EXPECT_THAT(errors[1], HasSubstr("there is no room on the device"));
}

// The last rank of the second pipeline fails. The first pipeline is told in a reduction.
TEST(HybridByHand, EndsOnAllRanksWhereOneFails) {
  testing_support::Survivors all(4);
  const Clock::time_point begin = Clock::now();
  const auto errors = testing_support::run_group(4, "shm", [&](ProcessGroup group) {
    at::set_num_threads(1);
    int calls = 0;
    const auto criterion = [&](const torch::Tensor& output, const torch::Tensor& target) {
      if (group.rank() == 3 && ++calls == 4) throw DataError("an unlucky label");
      return hybrid_loss(output, target);
    };
    try {
      train_by_hand(group, hybrid_net(), torch::kCPU, share_of, criterion);
    } catch (const Error&) {
      all.wait_for_all();  // stay, so that no rank fails only because another one has left
      throw;
    }
  });
  EXPECT_LT(seconds_since(begin), 25);  // an abandoned wait would take thirty seconds
  EXPECT_THAT(errors, Each(HasSubstr("an unlucky label")));
}

}  // namespace
}  // namespace lockstep
