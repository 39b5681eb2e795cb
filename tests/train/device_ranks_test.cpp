// The strategies of `lockstep train` on two ranks, each on a device, with a group that communicates
// through host memory, as when ranks share a GPU.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <tests/support/far_device/far_device.h>
#include <tests/support/groups.h>
#include <tests/train/trainer/trainer_runs.h>

namespace lockstep::train {
namespace {

using testing_support::no_errors;
namespace far_device = testing_support::far_device;

MnistNet net_of_ranks() {
  MnistNet net(MnistNetOptions{.dropout = false, .fused_kernels = false});
  const torch::NoGradGuard no_grad;
  double phase = 0;
  for (auto& parameter : net->parameters()) {
    const auto numbers = torch::arange(parameter.numel(), torch::kFloat64) * 12.9 + ++phase;
    parameter.copy_(numbers.sin().mul(0.1).view(parameter.sizes()));
  }
  return net;
}

Batch batch_of_step(int rank, int step, torch::Device device) {
  const auto numbers = torch::arange(4 * 28 * 28, torch::kFloat64) * 0.37 + rank * 11 + step;
  return {.images = numbers.cos().to(torch::kFloat32).view({4, 1, 28, 28}).to(device),
          .labels = torch::tensor({1, 7, 0, 4}, torch::kInt64).to(device),
          .size = 4};
}

using Weights = std::map<std::string, torch::Tensor>;

// The state of rank 0 after both ranks have trained three steps.
Weights weights_after_steps(const std::string& strategy_name, bool on_devices) {
  Weights weights;
  const int fd = comm::listen_on("127.0.0.1", 0);
  const auto errors = testing_support::run_threads(2, [&](int rank) {
    const torch::Device device = on_devices ? far_device::device(rank) : torch::Device(torch::kCPU);
    auto group = init_process_group({.backend = "shm",
                                     .timeout = std::chrono::seconds(60),
                                     .device = device,
                                     .environment = testing_support::environment_of(rank, 2, fd)});
    if (group.shares_memory() == on_devices) throw Error("shares_memory() is wrong");
    const auto strategy = make_strategy(strategy_name, group);
    ClassificationTask task(net_of_ranks(), ClassificationLoss::kNegativeLogLikelihood);
    if (on_devices) far_device::move_to(task.module(), device);
    strategy->place(task.module(), device);
    strategy->attach(task, {.device = device});
    const auto optimizer = strategy->make_optimizer(AdamOptions{.lr = 0.001});
    PhaseSeconds phases;
    for (int step = 0; step < 3; ++step) {
      optimizer->zero_grad();
      strategy->step(batch_of_step(rank, step, device), {.weight = 1, .is_last = true}, phases);
      optimizer->step();
    }
    for (const auto& item : task.module().named_parameters()) {
      if (item.value().device() != device) throw Error(item.key() + " left its device");
      if (rank == 0) weights[item.key()] = item.value().detach().cpu().clone();
    }
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
  return weights;
}

class DeviceRanks : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { far_device::install(); }
};

TEST_P(DeviceRanks, TrainAsOnCpus) {
  const Weights expected = weights_after_steps(GetParam(), false);
  const Weights got = weights_after_steps(GetParam(), true);
  ASSERT_EQ(got.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    EXPECT_LT((got.at(name) - tensor).abs().max().item<double>(), 1e-5) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, DeviceRanks, testing::Values("ddp", "zero1"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace lockstep::train
