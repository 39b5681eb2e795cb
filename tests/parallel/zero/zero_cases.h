// A net, and the two ways of training it that the tests of ZeroRedundancyOptimizer compare.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <lockstep/core/error.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/parallel/distributed_data_parallel.h>
#include <lockstep/parallel/zero_redundancy_optimizer.h>
#include <tests/support/groups.h>

namespace lockstep::testing_support {

/// Two layers of odd sizes, one of them with its own strides, and an optional layer.
struct ZeroNetImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x, bool with_extra = true) {
    x = torch::tanh(conv(x)).flatten(1);
    if (with_extra) x = x + extra(x);
    return head(x);
  }
  torch::nn::Conv2d conv = register_module("conv", torch::nn::Conv2d(3, 5, 3));
  torch::nn::Linear extra = register_module("extra", torch::nn::Linear(45, 45));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(45, 7));
};
TORCH_MODULE(ZeroNet);

/// Makes nets with identical values. The rank threads would share LibTorch's generator.
inline ZeroNet make_zero_net(torch::ScalarType dtype = torch::kFloat32) {
  const torch::NoGradGuard no_grad;
  ZeroNet net;
  double phase = 0;
  for (auto& parameter : net->parameters()) {
    const auto numbers = torch::arange(parameter.numel(), torch::kFloat64) * 12.9 + ++phase;
    parameter.copy_(numbers.sin().mul(0.2).view(parameter.sizes()));
  }
  net->conv->weight.set_data(net->conv->weight.contiguous(torch::MemoryFormat::ChannelsLast));
  net->to(dtype);
  return net;
}

/// A rank's training batch in a step.
inline torch::Tensor batch_of(int rank, int step, torch::ScalarType dtype = torch::kFloat32) {
  const auto numbers = torch::arange(4 * 3 * 5 * 5, torch::kFloat64) * 0.37 + rank * 11 + step;
  return numbers.cos().view({4, 3, 5, 5}).to(dtype);
}

inline torch::Tensor loss_of(const torch::Tensor& output) { return output.square().mean(); }

/// Caps that give several buckets with several parameters each.
inline DdpOptions ddp_options(ParameterMemory memory) {
  return {.bucket_cap_mb = 0.002, .first_bucket_cap_mb = 0.001, .parameter_memory = memory};
}

/// A net in DistributedDataParallel with a ZeroRedundancyOptimizer.
struct Sharded {
  Sharded(const ProcessGroup& group, ParameterMemory memory, const OptimizerOptions& options,
          ZeroNet of = make_zero_net())
      : Sharded(group, ddp_options(memory), options, std::move(of)) {}
  Sharded(const ProcessGroup& group, const DdpOptions& ddp_options, const OptimizerOptions& options,
          ZeroNet of = make_zero_net())
      : net(std::move(of)), ddp(net, group, ddp_options), optimizer(ddp.core(), *net, options) {}
  void backward(const torch::Tensor& x) { loss_of(ddp.forward(x)).backward(); }
  void step(const torch::Tensor& x) {
    optimizer.zero_grad();
    backward(x);
    optimizer.step();
  }
  ZeroNet net;
  DistributedDataParallel<ZeroNet> ddp;
  ZeroRedundancyOptimizer optimizer;
};

/// A net in DistributedDataParallel with a full optimizer on each rank.
struct Plain {
  Plain(const ProcessGroup& group, const OptimizerOptions& options, ZeroNet of = make_zero_net())
      : net(std::move(of)),
        ddp(net, group, ddp_options(ParameterMemory::kAsIs)),
        optimizer(*net, options) {}
  void backward(const torch::Tensor& x) { loss_of(ddp.forward(x)).backward(); }
  void step(const torch::Tensor& x) {
    optimizer.zero_grad();
    backward(x);
    optimizer.step();
  }
  ZeroNet net;
  DistributedDataParallel<ZeroNet> ddp;
  Optimizer optimizer;
};

/// Throws on a difference, so that rank threads can use it. A tolerance of 0 means bitwise
/// equality.
inline void require_same(const torch::nn::Module& got, const torch::nn::Module& expected,
                         double tolerance, const std::string& when) {
  const auto wanted = expected.named_parameters();
  for (const auto& item : got.named_parameters()) {
    const auto a = item.value().detach().to(torch::kCPU, torch::kFloat64);
    const auto b = wanted[item.key()].detach().to(torch::kCPU, torch::kFloat64);
    const double difference = (a - b).abs().max().item<double>();
    const double scale = b.abs().max().item<double>();
    if (!(difference <= tolerance * scale)) {
      throw Error(lockstep::str(when, ": ", item.key(), " differs by ", difference, " of ", scale));
    }
  }
}

struct ZeroCase {
  const char* name;
  std::string backend;
  int size;
  ParameterMemory memory;
  double tolerance;  // 0 where the reduction adds in the same order as all_reduce
};
inline constexpr auto kFlat = ParameterMemory::kFlat;
inline constexpr auto kShared = ParameterMemory::kShared;

/// Runs a test on all ranks of its case.
class Zero : public ::testing::TestWithParam<ZeroCase> {
 protected:
  static void run(const std::function<void(ProcessGroup)>& body) {
    const auto on_one_thread = [&](ProcessGroup group) {
      at::set_num_threads(1);  // more would wait for those of the other ranks
      body(std::move(group));
    };
    EXPECT_EQ(run_group(GetParam().size, GetParam().backend, on_one_thread),
              no_errors(GetParam().size));
  }
};

/// One set of options for every kind of optimizer.
inline const std::vector<OptimizerOptions>& all_options() {
  static const std::vector<OptimizerOptions> options = {
      SgdOptions{.lr = 0.02},
      SgdOptions{.lr = 0.01, .momentum = 0.9, .weight_decay = 0.01},
      SgdOptions{.lr = 0.01, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true},
      AdamOptions{.lr = 0.01, .weight_decay = 0.01},
      AdamWOptions{.lr = 0.01, .amsgrad = true},
  };
  return options;
}

}  // namespace lockstep::testing_support
