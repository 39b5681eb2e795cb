// DistributedDataParallel, with its options and hooks, Join and ZeroRedundancyOptimizer over NCCL
// with 1 to 8 ranks, compared with plain LibTorch in one process on the CPU.
#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/sgd.h>

#include <lockstep/core/error.h>
#include <lockstep/optim/clip_grad.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/parallel/comm_hooks/default_hooks.h>
#include <lockstep/parallel/comm_hooks/post_local_sgd.h>
#include <lockstep/parallel/comm_hooks/power_sgd.h>
#include <lockstep/parallel/distributed_data_parallel.h>
#include <lockstep/parallel/join.h>
#include <lockstep/parallel/zero_redundancy_optimizer.h>
#include <tests/parallel/mean_of_ranks.h>
#include <tests/parallel/zero/zero_cases.h>
#include <tests/support/devices/gpu_ranks.h>

namespace lockstep {
namespace {

using testing_support::ddp_options;
using testing_support::expect_gradients;
using testing_support::kOneToEightRanks;
using testing_support::make_zero_net;
using testing_support::mean_of_ranks;
using testing_support::name_of_ranks;
using testing_support::require_same;
using testing_support::Sharded;
using testing_support::ZeroNet;

class DdpOnGpus : public testing_support::OnGpus {};
INSTANTIATE_TEST_SUITE_P(Ranks, DdpOnGpus, kOneToEightRanks, name_of_ranks);

// --- Options and hooks ---------------------------------------------------------------------------

constexpr int kNeverLocal = std::numeric_limits<int>::max();

struct GpuDdpCase {
  const char* name;
  DdpOptions options = ddp_options(ParameterMemory::kAsIs);
  std::function<CommHook(const ProcessGroup&)> hook{};  // none: the mean
  // Whether the rank uses the net's optional layer in this step.
  bool (*uses_extra)(int rank, int step) = [](int, int) { return true; };
  bool accumulates = false;      // over two backwards, of which the first one is not reduced
  int local_from = kNeverLocal;  // the step from which each rank keeps its own gradients
  double tolerance = 1e-4;
};

DdpOptions gpu_ddp_options(const std::function<void(DdpOptions&)>& change) {
  DdpOptions options = ddp_options(ParameterMemory::kAsIs);
  change(options);
  return options;
}

// A matrix of full rank keeps every gradient, up to rounding.
CommHook power_sgd_of_full_rank(const ProcessGroup& group) {
  return PowerSgd(group, {.matrix_approximation_rank = 45,
                          .start_power_sgd_iter = 0,
                          .min_compression_rate = 0.01})
      .hook();
}

std::vector<GpuDdpCase> gpu_ddp_cases() {
  return {
      {.name = "the mean"},
      {.name = "flat parameters", .options = ddp_options(ParameterMemory::kFlat)},
      {.name = "one bucket", .options = {}},
      {.name = "accumulation", .accumulates = true},
      {.name = "unused parameters",
       .options = gpu_ddp_options([](DdpOptions& its) { its.find_unused_parameters = true; }),
       .uses_extra = [](int rank, int step) { return (rank + step) % 2 == 0; }},
      {.name = "a static graph",
       .options = gpu_ddp_options([](DdpOptions& its) { its.static_graph = true; }),
       .uses_extra = [](int rank, int) { return rank % 2 == 0; }},
      {.name = "all_reduce_hook", .hook = [](const ProcessGroup& g) { return all_reduce_hook(g); }},
      {.name = "noop_hook",
       .hook = [](const ProcessGroup&) { return noop_hook(); },
       .local_from = 0},
      {.name = "bf16_compress_hook",
       .hook = [](const ProcessGroup& g) { return bf16_compress_hook(g); },
       .tolerance = 1e-2},
      {.name = "fp16_compress_hook",
       .hook = [](const ProcessGroup& g) { return fp16_compress_hook(g); },
       .tolerance = 1e-2},
      {.name = "bf16_compress_wrapper",
       .hook = [](const ProcessGroup& g) { return bf16_compress_wrapper(g, all_reduce_hook(g)); },
       .tolerance = 1e-2},
      {.name = "post_local_sgd_hook",
       .hook = [](const ProcessGroup& g) { return post_local_sgd_hook(g, std::nullopt, 1); },
       .local_from = 1},
      {.name = "PowerSgd", .hook = power_sgd_of_full_rank, .tolerance = 1e-3},
  };
}

void check_gpu_ddp(const GpuDdpCase& given, const ProcessGroup& group, torch::Device gpu) {
  const int rank = group.rank(), size = group.size();
  // Each backward of a step.
  const auto backward = [&](int of_rank, int step, const auto& forward) {
    for (const int batch : given.accumulates ? std::vector{step, step + 100} : std::vector{step}) {
      forward(testing_support::batch_of(of_rank, batch), given.uses_extra(of_rank, step));
    }
  };
  ZeroNet net = make_zero_net();
  net->to(gpu);
  if (rank > 0) {  // rank 0's parameters replace these
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& parameter : net->parameters()) parameter.zero_();
  }
  DistributedDataParallel<ZeroNet> ddp(net, group, given.options);
  if (given.hook) ddp.register_comm_hook(given.hook(group));
  for (int step = 0; step < 2; ++step) {
    net->zero_grad();
    bool is_last = !given.accumulates;
    backward(rank, step, [&](const torch::Tensor& x, bool with_extra) {
      std::optional<DdpCore::NoSync> guard;
      if (!is_last) guard.emplace(ddp.core());
      is_last = true;
      testing_support::loss_of(ddp.forward(x.to(gpu), with_extra)).backward();
    });
    const bool is_local = step >= given.local_from;
    const auto expected = mean_of_ranks(is_local ? 1 : size, [&](int other) {
      ZeroNet plain = make_zero_net();
      backward(is_local ? rank : other, step, [&](const torch::Tensor& x, bool with_extra) {
        testing_support::loss_of(plain->forward(x, with_extra)).backward();
      });
      return plain;
    });
    expect_gradients(*net, expected, given.tolerance);
  }
}

TEST_P(DdpOnGpus, AverageGradientsWithEveryOptionAndHook) {
  expect_success([](const ProcessGroup& group, torch::Device gpu) {
    for (const GpuDdpCase& each : gpu_ddp_cases()) {
      try {
        check_gpu_ddp(each, group, gpu);
      } catch (const std::exception& error) {
        throw Error(str(each.name, ": ", error.what()));
      }
    }
  });
}

// --- Batch normalisation over the ranks, whose batches have different sizes ----------------------

struct GpuNormNetImpl : torch::nn::Module {
  GpuNormNetImpl() {
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& parameter : parameters()) {
      parameter.copy_(
          torch::arange(parameter.numel()).mul(0.7).sin().mul(0.3).add(0.1).view_as(parameter));
    }
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return linear(torch::relu(norm(conv(x))).flatten(1));
  }
  torch::nn::Conv2d conv = register_module("conv", torch::nn::Conv2d(3, 4, 3));
  torch::nn::BatchNorm2d norm = register_module("norm", torch::nn::BatchNorm2d(4));
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(4 * 3 * 3, 5));
};
TORCH_MODULE(GpuNormNet);

// The whole batch of a step. Rank r has the samples from first_sample(r) to first_sample(r + 1).
torch::Tensor gpu_norm_batch(int step, std::int64_t samples) {
  return torch::arange(samples * 75).add(11 * step).mul(0.37).cos().view({samples, 3, 5, 5});
}
std::int64_t first_sample(int rank) { return rank * (rank + 3) / 2; }  // 2, 3, 4, ... samples

void require_close_tensors(const torch::OrderedDict<std::string, torch::Tensor>& got,
                           const torch::OrderedDict<std::string, torch::Tensor>& expected) {
  for (const auto& item : got) {
    const torch::Tensor own = item.value().detach().to(torch::kCPU, torch::kFloat64);
    const torch::Tensor other = expected[item.key()].detach().to(torch::kFloat64);
    const double difference = ((own - other).norm() / other.norm().clamp_min(1e-6)).item<double>();
    LOCKSTEP_CHECK(difference <= 1e-4, item.key(), " differs by ", difference);
  }
}

void check_ddp_with_sync_batch_norm(const ProcessGroup& group, torch::Device gpu) {
  const int rank = group.rank(), size = group.size();
  const std::int64_t samples = first_sample(size), begin = first_sample(rank);
  GpuNormNet oracle, net;
  net->to(gpu);
  DistributedDataParallel<GpuNormNet> ddp(net, group, {.sync_batch_norm = true});
  torch::optim::SGD expected(oracle->parameters(), 0.05), optimizer(net->parameters(), 0.05);
  for (int step = 0; step < 3; ++step) {
    const torch::Tensor batch = gpu_norm_batch(step, samples);
    expected.zero_grad();
    (oracle->forward(batch).square().sum() / samples).backward();
    expected.step();
    optimizer.zero_grad();
    const torch::Tensor own = batch.narrow(0, begin, first_sample(rank + 1) - begin).to(gpu);
    // The mean over the ranks of this is the mean over the samples.
    (ddp.forward(own).square().sum() * (static_cast<double>(size) / static_cast<double>(samples)))
        .backward();
    optimizer.step();
  }
  require_close_tensors(net->named_parameters(), oracle->named_parameters());
  require_close_tensors(net->named_buffers(), oracle->named_buffers());
}

// --- Ranks with different numbers of batches -----------------------------------------------------

// The samples of a rank's batch; 0 after its last one.
std::int64_t uneven_samples(int rank, int step) {
  return step < 2 + rank % 3 ? 4 - (rank + step) % 2 : 0;
}
torch::Tensor uneven_batch(int rank, int step) {
  const std::int64_t samples = uneven_samples(rank, step);
  const torch::Tensor numbers = torch::arange(samples * 3, torch::kFloat64);
  return numbers.add(7 * rank + step).mul(0.9).sin().view({samples, 3});
}
torch::nn::Linear linear_of_join() {
  torch::nn::Linear linear(3, 2);
  linear->to(torch::kFloat64);
  const torch::NoGradGuard no_grad;
  linear->weight.fill_(0.5);
  linear->bias.fill_(0.25);
  return linear;
}

void check_join(const ProcessGroup& group, torch::Device gpu, JoinMode mode) {
  const int rank = group.rank(), size = group.size();
  const int most = size > 2 ? 4 : 1 + size;
  const int steps = mode == JoinMode::kShortest ? 2 : most;  // rank 0 has two batches
  torch::nn::Linear oracle = linear_of_join(), net = linear_of_join();
  net->to(gpu);
  torch::optim::SGD expected(oracle->parameters(), 0.1), optimizer(net->parameters(), 0.1);
  for (int step = 0; step < steps; ++step) {
    std::vector<torch::Tensor> batches;
    for (int each = 0; each < size; ++each) batches.push_back(uneven_batch(each, step));
    expected.zero_grad();
    const torch::Tensor loss = oracle->forward(torch::cat(batches)).square().sum(1);
    if (mode == JoinMode::kWeighted) {
      loss.mean().backward();
    } else {  // each rank counts alike
      torch::Tensor sum = torch::zeros({}, torch::kFloat64);
      for (const auto& each : loss.split_with_sizes([&] {
             std::vector<std::int64_t> counts;
             for (const auto& batch : batches) counts.push_back(batch.size(0));
             return counts;
           }())) {
        sum = sum + each.mean() / size;
      }
      sum.backward();
    }
    expected.step();
  }
  DistributedDataParallel<torch::nn::Linear> ddp(net, group);
  Join join(ddp.core(), mode);
  int step = 0;
  for (; join.next(uneven_samples(rank, step)); ++step) {
    optimizer.zero_grad();
    join.backward(
        [&] { return ddp.forward(uneven_batch(rank, step).to(gpu)).square().sum(1).mean(); });
    optimizer.step();
  }
  LOCKSTEP_CHECK(step == steps, "ended after ", step, " steps, expected ", steps);
  require_close_tensors(net->named_parameters(), oracle->named_parameters());
}

TEST_P(DdpOnGpus, TrainOnUnevenBatchesAndWhereTheyRunOut) {
  expect_success(
      {{"sync batch norm", check_ddp_with_sync_batch_norm},
       {"join weighted", [](const ProcessGroup& group,
                            torch::Device gpu) { check_join(group, gpu, JoinMode::kWeighted); }},
       {"join shortest", [](const ProcessGroup& group, torch::Device gpu) {
          check_join(group, gpu, JoinMode::kShortest);
        }}});
}

// --- ZeRO ----------------------------------------------------------------------------------------

// One process that steps with the batches of all ranks, with clipped gradients. In the middle the
// state moves to another optimizer, as in a resumed run.
void check_gpu_zero(const ProcessGroup& group, torch::Device gpu, const OptimizerOptions& options) {
  constexpr double kMostNorm = 0.02;
  ZeroNet plain = make_zero_net();
  Optimizer optimizer(*plain, options);
  const auto net_on_gpu = [&] {
    ZeroNet net = make_zero_net();
    net->to(gpu);
    return net;
  };
  std::optional<Sharded> sharded(std::in_place, group, ParameterMemory::kFlat, options,
                                 net_on_gpu());
  for (int step = 0; step < 4; ++step) {
    if (step == 2) {
      const NamedTensors state = sharded->optimizer.state_dict();
      ZeroNet next = net_on_gpu();
      {
        const torch::NoGradGuard no_grad;
        const auto from = sharded->net->parameters(), to = next->parameters();
        for (std::size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
      }
      sharded.emplace(group, ParameterMemory::kFlat, options, next);
      sharded->optimizer.load_state_dict(state);
    }
    Tensors batches;
    for (int rank = 0; rank < group.size(); ++rank) {
      batches.push_back(testing_support::batch_of(rank, step));
    }
    optimizer.zero_grad();
    testing_support::loss_of(plain->forward(torch::cat(batches))).backward();
    const double expected = clip_grad_norm_(plain->parameters(), kMostNorm).item<double>();
    optimizer.step();
    sharded->optimizer.zero_grad();
    sharded->backward(batches[static_cast<std::size_t>(group.rank())].to(gpu));
    const double norm = sharded->optimizer.clip_grad_norm(kMostNorm).item<double>();
    LOCKSTEP_CHECK(std::abs(norm - expected) <= 1e-4 * expected, "the norm is ", norm,
                   ", expected ", expected);
    sharded->optimizer.step();
    require_same(*sharded->net, *plain, 1e-3, str("step ", step));
  }
}

TEST_P(DdpOnGpus, WithAShardedOptimizerStepAsOneProcess) {
  expect_success([](const ProcessGroup& group, torch::Device gpu) {
    const OptimizerOptions all[] = {
        SgdOptions{.lr = 0.05, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true},
        AdamWOptions{.lr = 0.01, .amsgrad = true}};
    for (const OptimizerOptions& each : all) check_gpu_zero(group, gpu, each);
  });
}

}  // namespace
}  // namespace lockstep
