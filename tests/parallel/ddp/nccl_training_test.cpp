// The reducer, its hooks and ZeRO over NCCL with one rank, and with two ranks that share a GPU.
// With one rank the mean is that rank's gradient, so that a module without DistributedDataParallel
// is the oracle.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <torch/cuda.h>
#include <torch/nn/module.h>

#include <lockstep/optim/optimizer.h>
#include <lockstep/parallel/comm_hooks/default_hooks.h>
#include <lockstep/parallel/comm_hooks/power_sgd.h>
#include <lockstep/parallel/distributed_data_parallel.h>
#include <lockstep/parallel/zero_redundancy_optimizer.h>
#include <tests/parallel/mean_of_ranks.h>
#include <tests/parallel/zero/zero_cases.h>
#include <tests/support/devices/gpu.h>
#include <tests/support/devices/gpu_ranks.h>

namespace lockstep {
namespace {

using testing_support::batch_of;
using testing_support::ddp_options;
using testing_support::expect_gradients;
using testing_support::kGpu;
using testing_support::kNoGpuFound;
using testing_support::loss_of;
using testing_support::make_zero_net;
using testing_support::mean_of_ranks;
using testing_support::no_errors;
using testing_support::require_same;
using testing_support::ZeroNet;

ZeroNet net_on_gpu() {
  ZeroNet net = make_zero_net();
  net->to(kGpu);
  return net;
}
torch::Tensor batch_on_gpu(int rank, int step) { return batch_of(rank, step).to(kGpu); }

class TrainingOverNccl : public testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available() || !nccl_available()) {
      GTEST_SKIP() << "needs a GPU, and a test program with NCCL (from the CUDA build)";
    }
    group_.emplace(init_process_group({.backend = "nccl",
                                       .timeout = std::chrono::seconds(60),
                                       .device = kGpu,
                                       .environment = WorkerEnvironment{}}));
  }
  ProcessGroup& group() { return *group_; }

 private:
  std::optional<ProcessGroup> group_;
};

TEST_F(TrainingOverNccl, DdpAndItsHooksAverage) {
  const std::vector<std::pair<std::string, CommHook>> hooks = {
      {"none", nullptr},
      {"all_reduce", all_reduce_hook(group())},
      {"bf16", bf16_compress_hook(group())},
  };
  for (const auto& [name, hook] : hooks) {
    SCOPED_TRACE(name);
    ZeroNet net = net_on_gpu();
    DistributedDataParallel<ZeroNet> ddp(net, group(), ddp_options(ParameterMemory::kFlat));
    if (hook) ddp.register_comm_hook(hook);
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      loss_of(ddp.forward(batch_on_gpu(0, step))).backward();
      const auto expected = mean_of_ranks(1, [&](int) {
        ZeroNet plain = net_on_gpu();
        loss_of(plain->forward(batch_on_gpu(0, step))).backward();
        return plain;
      });
      EXPECT_NO_THROW(expect_gradients(*net, expected, name == "bf16" ? 1e-2 : 1e-4));
    }
  }
}

TEST_F(TrainingOverNccl, PowerSgdTrains) {
  ZeroNet net = net_on_gpu();
  DistributedDataParallel<ZeroNet> ddp(net, group(), ddp_options(ParameterMemory::kAsIs));
  const PowerSgd power_sgd(group(), {.matrix_approximation_rank = 4, .start_power_sgd_iter = 0});
  ddp.register_comm_hook(power_sgd.hook());
  loss_of(ddp.forward(batch_on_gpu(0, 0))).backward();
  EXPECT_EQ(power_sgd.statistics().iterations, 1);
  for (const auto& parameter : net->parameters()) {
    EXPECT_TRUE(parameter.grad().isfinite().all().item<bool>());
  }
}

TEST_F(TrainingOverNccl, ZeroStepsAsOneOptimizerDoes) {
  ZeroNet plain = net_on_gpu();
  Optimizer optimizer(*plain, AdamOptions{.lr = 0.01});
  testing_support::Sharded sharded(group(), ParameterMemory::kFlat, AdamOptions{.lr = 0.01},
                                   net_on_gpu());
  for (int step = 0; step < 4; ++step) {
    const auto x = batch_on_gpu(0, step);
    optimizer.zero_grad();
    loss_of(plain->forward(x)).backward();
    optimizer.step();
    sharded.step(x);
  }
  EXPECT_NO_THROW(require_same(*sharded.net, *plain, 1e-4, "after four steps"));
}

TEST(TrainingOnOneGpu, TwoRanksAgreeWithOneProcess) {
  const auto errors = testing_support::run_two_ranks_on_a_gpu([](const ProcessGroup& group) {
    testing_support::Sharded sharded(group, ParameterMemory::kFlat, SgdOptions{.lr = 0.05},
                                     net_on_gpu());
    ZeroNet plain = net_on_gpu();
    Optimizer optimizer(*plain, SgdOptions{.lr = 0.05});
    for (int step = 0; step < 3; ++step) {
      sharded.step(batch_on_gpu(group.rank(), step));
      optimizer.zero_grad();
      const auto both = torch::cat({batch_on_gpu(0, step), batch_on_gpu(1, step)});
      loss_of(plain->forward(both)).backward();
      optimizer.step();
    }
    require_same(*sharded.net, *plain, 1e-4, "after three steps");
  });
  if (errors == kNoGpuFound) GTEST_SKIP() << "needs a GPU, and a CUDA build of LibTorch";
  EXPECT_EQ(errors, no_errors(2));
}

}  // namespace
}  // namespace lockstep
