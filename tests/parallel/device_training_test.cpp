// DistributedDataParallel, its hooks and ZeroRedundancyOptimizer with gradients in memory that the
// host cannot access, and a group that communicates through host memory. The CPU is the oracle.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include <lockstep/optim/optimizer.h>
#include <lockstep/parallel/comm_hooks/default_hooks.h>
#include <lockstep/parallel/comm_hooks/power_sgd.h>
#include <lockstep/parallel/distributed_data_parallel.h>
#include <lockstep/parallel/zero_redundancy_optimizer.h>
#include <tests/parallel/mean_of_ranks.h>
#include <tests/support/far_device/far_device.h>
#include <tests/support/groups.h>

namespace lockstep {
namespace {

using testing_support::expect_gradients;
using testing_support::mean_of_ranks;
using testing_support::no_errors;
using torch::Tensor;
namespace far_device = testing_support::far_device;

constexpr int kRanks = 2;

// Numbers from a formula instead of a generator, so that they are equal on every device.
Tensor numbers(at::IntArrayRef shape, double phase, torch::Device device) {
  const auto count = c10::multiply_integers(shape);
  const Tensor all = (torch::arange(count, torch::kFloat64) * 12.9 + phase).sin().mul(0.4);
  return all.to(torch::kFloat32).view(shape).to(device);
}

// Two layers and an optional one. The parameters are created on their device, because no module can
// be moved to the far device.
struct DeviceNetImpl : torch::nn::Module {
  explicit DeviceNetImpl(torch::Device device) {
    first = register_parameter("first", numbers({24, 6}, 1, device));
    bias = register_parameter("bias", numbers({24}, 2, device));
    extra = register_parameter("extra", numbers({24, 24}, 3, device));
    head = register_parameter("head", numbers({3, 24}, 4, device));
    calls = register_buffer("calls", torch::zeros({1}, torch::TensorOptions().device(device)));
  }
  Tensor forward(const Tensor& x, bool with_extra = true) {
    Tensor y = torch::tanh(torch::linear(x, first, bias));
    if (with_extra) y = torch::tanh(torch::linear(y, extra));
    return torch::linear(y, head);
  }
  Tensor first, bias, extra, head, calls;
};
TORCH_MODULE(DeviceNet);

Tensor batch_of_rank(int rank, int step, torch::Device device) {
  return numbers({5, 6}, 100.0 * step + rank, device);
}
Tensor loss_of_output(const Tensor& output) { return output.square().mean(); }

using Body = std::function<void(ProcessGroup, torch::Device)>;

std::vector<std::string> run_on(const std::string& backend, bool on_far_devices, const Body& body) {
  const int fd = comm::listen_on("127.0.0.1", 0);
  return testing_support::run_threads(kRanks, [&](int rank) {
    const torch::Device device = on_far_devices ? far_device::device(rank) : torch::kCPU;
    body(init_process_group({.backend = backend,
                             .timeout = std::chrono::seconds(60),
                             .device = device,
                             .environment = testing_support::environment_of(rank, kRanks, fd)}),
         device);
  });
}

// The gradients that a module without DistributedDataParallel computes, on the CPU.
testing_support::Gradients expected_gradients(int step,
                                              const std::function<bool(int)>& uses_extra) {
  return mean_of_ranks(kRanks, [&](int rank) {
    DeviceNet net(torch::kCPU);
    const Tensor x = batch_of_rank(rank, step, torch::kCPU);
    loss_of_output(net->forward(x, uses_extra(rank))).backward();
    return net;
  });
}

// The values (or the gradients) of all parameters, copied to the CPU.
std::map<std::string, Tensor> on_cpu(const torch::nn::Module& module, bool gradients) {
  std::map<std::string, Tensor> tensors;
  for (const auto& item : module.named_parameters()) {
    tensors[item.key()] = (gradients ? item.value().grad() : item.value()).detach().cpu().clone();
  }
  return tensors;
}

void require_close(const std::map<std::string, Tensor>& got,
                   const std::map<std::string, Tensor>& expected, double tolerance) {
  for (const auto& [name, tensor] : expected) {
    const double difference = (got.at(name) - tensor).abs().max().item<double>();
    if (!(difference <= tolerance)) throw Error(str(name, " differs by ", difference));
  }
}

class DeviceTraining : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { far_device::install(); }  // autograd counts devices at its first backward
};

TEST_P(DeviceTraining, DdpAveragesWhereTheGradientsAre) {
  const auto all_use = [](int) { return true; };
  EXPECT_EQ(
      run_on(GetParam(), true,
             [&](ProcessGroup group, torch::Device device) {
               DeviceNet net(device);
               DistributedDataParallel<DeviceNet> ddp(
                   net, group, {.bucket_cap_mb = 0.002, .first_bucket_cap_mb = 0.001});
               for (int step = 0; step < 3; ++step) {
                 net->zero_grad();
                 loss_of_output(ddp.forward(batch_of_rank(group.rank(), step, device))).backward();
                 for (const Tensor& parameter : net->parameters()) {
                   if (parameter.grad().device() != device)
                     throw Error("a gradient left its device");
                 }
                 expect_gradients(*net, expected_gradients(step, all_use), 1e-5);
               }
             }),
      no_errors(kRanks));
}

TEST_P(DeviceTraining, DdpFindsUnusedParameters) {
  const auto only_first = [](int rank) { return rank == 0; };
  EXPECT_EQ(run_on(GetParam(), true,
                   [&](ProcessGroup group, torch::Device device) {
                     DeviceNet net(device);
                     DistributedDataParallel<DeviceNet> ddp(
                         net, group,
                         {.bucket_cap_mb = 0.002,
                          .find_unused_parameters = true,
                          .parameter_memory = ParameterMemory::kFlat});
                     for (int step = 0; step < 2; ++step) {
                       net->zero_grad();
                       const Tensor x = batch_of_rank(group.rank(), step, device);
                       loss_of_output(ddp.forward(x, only_first(group.rank()))).backward();
                       expect_gradients(*net, expected_gradients(step, only_first), 1e-5);
                     }
                   }),
            no_errors(kRanks));
}

using HookOf = std::function<CommHook(ProcessGroup)>;

// The gradients of rank 0 after two steps with each hook.
std::map<std::string, Tensor> gradients_with(const std::string& backend, bool on_far_devices,
                                             const HookOf& hook_of) {
  std::map<std::string, Tensor> result;
  const auto errors =
      run_on(backend, on_far_devices, [&](ProcessGroup group, torch::Device device) {
        DeviceNet net(device);
        DistributedDataParallel<DeviceNet> ddp(net, group, {.bucket_cap_mb = 0.002});
        ddp.register_comm_hook(hook_of(group));
        for (int step = 0; step < 2; ++step) {
          net->zero_grad();
          loss_of_output(ddp.forward(batch_of_rank(group.rank(), step, device))).backward();
        }
        if (group.rank() == 0) result = on_cpu(*net, /*gradients=*/true);
      });
  if (errors != no_errors(kRanks)) throw Error(join(errors));
  return result;
}

TEST_P(DeviceTraining, HooksComputeWhatTheyDoOnCpus) {
  const std::vector<std::pair<const char*, HookOf>> hooks = {
      {"all_reduce", [](ProcessGroup group) { return all_reduce_hook(group); }},
      {"fp16", [](ProcessGroup group) { return fp16_compress_hook(group); }},
      {"bf16", [](ProcessGroup group) { return bf16_compress_hook(group); }},
      {"power_sgd",
       [](ProcessGroup group) {
         return PowerSgd(group, {.matrix_approximation_rank = 2, .start_power_sgd_iter = 0}).hook();
       }},
  };
  for (const auto& [name, hook_of] : hooks) {
    SCOPED_TRACE(name);
    const auto expected = gradients_with(GetParam(), false, hook_of);
    const auto got = gradients_with(GetParam(), true, hook_of);
    EXPECT_NO_THROW(require_close(got, expected, 1e-5));
  }
}

// The parameters after several steps, the norm that clipping computed, and the gathered state.
std::map<std::string, Tensor> train_sharded(const std::string& backend, bool on_far_devices) {
  std::map<std::string, Tensor> result;
  const auto errors =
      run_on(backend, on_far_devices, [&](ProcessGroup group, torch::Device device) {
        DeviceNet net(device);
        DistributedDataParallel<DeviceNet> ddp(
            net, group, {.bucket_cap_mb = 0.002, .parameter_memory = ParameterMemory::kFlat});
        ZeroRedundancyOptimizer optimizer(ddp.core(), *net, AdamOptions{.lr = 0.01});
        Tensor norm;
        for (int step = 0; step < 4; ++step) {
          optimizer.zero_grad();
          loss_of_output(ddp.forward(batch_of_rank(group.rank(), step, device))).backward();
          norm = optimizer.clip_grad_norm(0.05);
          optimizer.step();
        }
        const auto state = optimizer.state_dict(0);
        optimizer.load_state_dict(state, 0);
        if (group.rank() != 0) return;
        result = on_cpu(*net, /*gradients=*/false);
        result["norm"] = norm.cpu();
        for (const auto& [name, tensor] : state) result["state " + name] = tensor.cpu();
      });
  if (errors != no_errors(kRanks)) throw Error(join(errors));
  return result;
}

TEST_P(DeviceTraining, ZeroStepsItsSharesOnTheDevice) {
  const auto expected = train_sharded(GetParam(), false);
  EXPECT_NO_THROW(require_close(train_sharded(GetParam(), true), expected, 1e-5));
}

TEST_P(DeviceTraining, NoMemoryIsSharedThere) {
  EXPECT_EQ(run_on(GetParam(), true,
                   [](ProcessGroup group, torch::Device device) {
                     DeviceNet net(device);
                     EXPECT_THAT(
                         [&] {
                           DistributedDataParallel<DeviceNet> ddp(
                               net, group, {.parameter_memory = ParameterMemory::kShared});
                         },
                         testing::ThrowsMessage<ConfigError>(testing::HasSubstr("use kFlat")));
                   }),
            no_errors(kRanks));
}

INSTANTIATE_TEST_SUITE_P(Backends, DeviceTraining, testing::Values("shm", "gloo"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace lockstep
