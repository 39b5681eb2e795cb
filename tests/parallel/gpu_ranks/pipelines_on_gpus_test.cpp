// Pipelines of 1 to 8 ranks on GPUs with every schedule, alone and replicated, whose gradients are
// compared with those of plain LibTorch in one process on the CPU. pipeline_gpu_test.cpp tests
// pipelines on threads, whose workers may also share a GPU.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <lockstep/core/error.h>
#include <lockstep/optim/clip_grad.h>
#include <lockstep/parallel/device_mesh.h>
#include <lockstep/parallel/pipeline/balance.h>
#include <lockstep/parallel/pipeline/distributed_pipeline.h>
#include <lockstep/parallel/pipeline/pipeline_setup.h>
#include <tests/support/devices/gpu_ranks.h>

namespace lockstep {
namespace {

using testing_support::name_of_ranks;

constexpr int kBlocks = 16;  // stages at most: eight ranks with two each
constexpr std::int64_t kPipelineSamples = 24;

// Blocks of a linear layer and a tanh, always with the same weights.
torch::nn::Sequential net_of_blocks() {
  torch::nn::Sequential net;
  for (int block = 0; block < kBlocks; ++block) {
    net->push_back(torch::nn::Linear(8, 8));
    net->push_back(torch::nn::Tanh());
  }
  const torch::NoGradGuard no_grad;
  double phase = 0;
  for (torch::Tensor& parameter : net->parameters()) {
    const torch::Tensor numbers = torch::arange(parameter.numel(), torch::kFloat64) * 12.9;
    parameter.copy_((numbers + ++phase).sin().mul(0.7).view(parameter.sizes()));
  }
  return net;
}

struct PipelineBatch {
  torch::Tensor x = torch::arange(kPipelineSamples * 8).mul(0.9).cos().view({kPipelineSamples, 8});
  torch::Tensor y = torch::arange(kPipelineSamples).remainder(8);
};

torch::Tensor loss_of_blocks(const torch::Tensor& output, const torch::Tensor& target) {
  return torch::cross_entropy_loss(output, target);
}

// What one process computes with the whole batch on the CPU.
struct PipelineOracle {
  PipelineOracle() {
    const PipelineBatch batch;
    const torch::Tensor of_batch = loss_of_blocks(net->forward(batch.x), batch.y);
    of_batch.backward();
    loss = of_batch.item<double>();
    norm = clip_grad_norm_(net->parameters(), /*max_norm=*/1e9).item<double>();
  }
  torch::nn::Sequential net = net_of_blocks();
  double loss = 0;
  double norm = 0;
};

std::vector<pipeline::StageModule> stages_of_worker(const torch::nn::Sequential& net,
                                                    Schedule schedule, int worker, int workers) {
  const int stages = workers * stages_per_worker(schedule);
  const std::vector<int> sizes(static_cast<std::size_t>(stages), 2 * kBlocks / stages);
  const auto all = pipeline::stage_modules(split(net, sizes));
  std::vector<pipeline::StageModule> own;
  for (int s = 0; s < stages; ++s) {
    const int of_zbv = std::min(s, 2 * workers - 1 - s);
    if ((schedule == Schedule::kZbV ? of_zbv : s % workers) == worker) {
      own.push_back(all[static_cast<std::size_t>(s)]);
    }
  }
  return own;
}

// Compares the gradients of the parameters that this rank has on its GPU. Returns their number.
int check_gradients_of_stages(const torch::nn::Sequential& net, const PipelineOracle& oracle) {
  const auto parameters = net->parameters(), expected = oracle.net->parameters();
  int compared = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].is_cpu()) continue;
    LOCKSTEP_CHECK(parameters[i].grad().defined(), "parameter ", i, " has no gradient");
    const torch::Tensor own = parameters[i].grad().cpu(), &other = expected[i].grad();
    const double difference = ((own - other).norm() / other.norm()).item<double>();
    LOCKSTEP_CHECK(difference < 1e-3, "gradient ", i, " differs by ", difference);
    ++compared;
  }
  return compared;
}

// A step of this rank's pipeline, the ranks of `row`, with one of the parts of the batch.
void check_pipeline_step(ProcessGroup row, torch::Device gpu, PipelineOptions options,
                         const PipelineOracle& oracle, int part = 0, int parts = 1) {
  const torch::nn::Sequential net = net_of_blocks();
  const PipelineBatch batch;
  options.micro_batches = 3;
  DistributedPipeline pipe(stages_of_worker(net, options.schedule, row.rank(), row.size()), row,
                           gpu, options);
  const bool is_first = row.rank() == 0;
  const bool is_last = pipe.table().worker_of.back() == row.rank();
  const auto share_of = [&](const torch::Tensor& tensor) {
    return tensor.chunk(parts)[static_cast<std::size_t>(part)].to(gpu);
  };
  const torch::Tensor loss =
      pipe.step(loss_of_blocks, is_first ? share_of(batch.x) : torch::Tensor(),
                is_last ? share_of(batch.y) : torch::Tensor());
  LOCKSTEP_CHECK(loss.defined() == is_last, "the loss is on the wrong rank");
  if (is_last && parts == 1) {
    const double got = loss.item<double>();
    LOCKSTEP_CHECK(std::abs(got - oracle.loss) < 1e-4 * oracle.loss, "the loss is ", got,
                   ", expected ", oracle.loss);
  }
  const int compared = check_gradients_of_stages(net, oracle);
  LOCKSTEP_CHECK(compared == 2 * kBlocks / row.size(), "compared ", compared, " gradients");
  const double norm = clip_grad_norm_(pipe.parameters(), /*max_norm=*/1e9, row).item<double>();
  LOCKSTEP_CHECK(std::abs(norm - oracle.norm) < 1e-3 * oracle.norm, "the norm is ", norm,
                 ", expected ", oracle.norm);
}

class PipelinesOnGpus : public testing_support::OnGpus {};
INSTANTIATE_TEST_SUITE_P(Ranks, PipelinesOnGpus, testing_support::kOneToEightRanks, name_of_ranks);

TEST_P(PipelinesOnGpus, LearnTheGradientsOfOneProcessWithEverySchedule) {
  expect_success([](const ProcessGroup& group, torch::Device gpu) {
    const PipelineOracle oracle;
    for (const std::string& name : schedule_names()) {
      try {
        const Schedule schedule = schedule_named(name);
        check_pipeline_step(group, gpu, {.schedule = schedule, .recompute = name == "1f1b"},
                            oracle);
      } catch (const std::exception& error) {
        throw Error(str(name, ": ", error.what()));
      }
    }
  });
}

class ReplicatedPipelinesOnGpus : public testing_support::OnGpus {};
INSTANTIATE_TEST_SUITE_P(Ranks, ReplicatedPipelinesOnGpus, testing_support::kTwoToEightRanks,
                         name_of_ranks);

// Pipelines of two ranks, each with a part of the batch. The ranks with the same stages average
// their gradients over NCCL.
TEST_P(ReplicatedPipelinesOnGpus, AverageTheGradientsOfTheirStages) {
  expect_success([](const ProcessGroup& group, torch::Device gpu) {
    const PipelineOracle oracle;
    DeviceMesh mesh(group, {{"data", group.size() / 2}, {"pipeline", 2}});
    ProcessGroup& replicas = mesh.group("data");
    for (const Schedule schedule : {Schedule::k1F1B, Schedule::kInterleaved, Schedule::kZbV}) {
      PipelineOptions options{.schedule = schedule};
      options.reduce = [&](int, const Tensors& parameters) {
        Tensors gradients;
        for (const torch::Tensor& parameter : parameters) gradients.push_back(parameter.grad());
        replicas.all_reduce_coalesced(gradients, ReduceOp::kAverage);
      };
      try {
        check_pipeline_step(mesh.group("pipeline"), gpu, options, oracle, mesh.local_rank("data"),
                            mesh.size("data"));
      } catch (const std::exception& error) {
        throw Error(str(schedule_name(schedule), ": ", error.what()));
      }
    }
  });
}

}  // namespace
}  // namespace lockstep
