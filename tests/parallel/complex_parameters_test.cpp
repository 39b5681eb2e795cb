// Complex parameters in DistributedDataParallel, its hooks, the sharded optimizer and batch
// normalisation. The oracle is one process that averages the gradients of all ranks and steps the
// real and imaginary parts with torch::optim.
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <lockstep/core/error.h>
#include <lockstep/parallel/comm_hooks/default_hooks.h>
#include <lockstep/parallel/comm_hooks/post_local_sgd.h>
#include <lockstep/parallel/comm_hooks/power_sgd.h>
#include <lockstep/parallel/distributed_data_parallel.h>
#include <lockstep/parallel/zero_redundancy_optimizer.h>
#include <tests/support/groups.h>
#include <tests/support/messages.h>

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing_support::message_of;
using testing_support::no_errors;
using testing_support::run_group;

torch::Tensor complex_numbers(at::IntArrayRef shape, double phase,
                              torch::ScalarType type = torch::kComplexFloat) {
  const auto angles = torch::arange(c10::multiply_integers(shape), torch::kFloat64) * 12.9 + phase;
  return torch::complex(angles.sin(), (angles * 1.7).cos()).view(shape).to(type);
}

// A complex layer with a real factor, and a parameter of double precision.
struct ComplexNetImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    const auto y = torch::addmm(bias, x, weight) * gain;
    return y.abs().square().mean() +
           (precise * x[0].sum()).abs().square().sum().to(torch::kFloat32);
  }
  torch::Tensor weight = register_parameter("weight", complex_numbers({6, 20}, 1) * 0.3);
  torch::Tensor bias = register_parameter("bias", complex_numbers({20}, 2) * 0.3);
  torch::Tensor gain = register_parameter("gain", torch::linspace(0.5, 1.5, 20));
  torch::Tensor precise =
      register_parameter("precise", complex_numbers({3}, 3, torch::kComplexDouble) * 0.1);
};
TORCH_MODULE(ComplexNet);

torch::Tensor complex_batch(int rank, int step) {
  return complex_numbers({4, 6}, 5 + rank + 10 * step) * 0.5;
}

torch::Tensor parts_of(const torch::Tensor& tensor) {
  const auto plain = tensor.detach().resolve_conj();
  return (plain.is_complex() ? at::view_as_real(plain) : plain).to(torch::kFloat64);
}

// One process with the gradients of all ranks.
class ComplexOracle {
 public:
  explicit ComplexOracle(int size) : size_(size) {}

  /// Sets the gradients of step `step` to the mean over the ranks.
  void average(int step) {
    net->zero_grad();
    for (int rank = 0; rank < size_; ++rank) {
      (net->forward(complex_batch(rank, step)) / size_).backward();
    }
  }
  double norm() const {
    double squares = 0;
    for (const auto& parameter : net->parameters()) {
      squares += parts_of(parameter.grad()).square().sum().item<double>();
    }
    return std::sqrt(squares);
  }
  void scale(double factor) {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : net->parameters()) parameter.mutable_grad().mul_(factor);
  }
  /// Steps the real and imaginary parts.
  template <class Torchs, class Options>
  void step(const Options& options) {
    if (!optimizer_) {
      for (const auto& parameter : net->parameters()) {
        const auto value = parameter.detach();
        parts_.push_back((value.is_complex() ? at::view_as_real(value) : value).requires_grad_());
      }
      optimizer_ = std::make_unique<Torchs>(parts_, options);
    }
    const auto parameters = net->parameters();
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const auto& gradient = parameters[i].grad();
      parts_[i].mutable_grad() = gradient.is_complex() ? at::view_as_real(gradient) : gradient;
    }
    optimizer_->step();
  }

  ComplexNet net;

 private:
  const int size_;
  std::vector<torch::Tensor> parts_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

void require_close(const torch::nn::Module& got, const torch::nn::Module& expected, bool gradients,
                   double tolerance, const std::string& what) {
  const auto wanted = expected.named_parameters();
  for (const auto& item : got.named_parameters()) {
    const auto& other = wanted[item.key()];
    const auto a = parts_of(gradients ? item.value().grad() : item.value());
    const auto b = parts_of(gradients ? other.grad() : other);
    const double difference = ((a - b).norm() / b.norm()).item<double>();
    LOCKSTEP_CHECK(difference <= tolerance, what, ": ", item.key(), " differs by ", difference);
  }
}

struct HookOfComplex {
  const char* name;
  double tolerance;
  std::function<CommHook(ProcessGroup)> make;  // null: no hook
};

const std::vector<HookOfComplex> kHooksOfComplex = {
    {"no hook", 1e-6, nullptr},
    {"all_reduce_hook", 1e-6, [](auto g) { return all_reduce_hook(g); }},
    {"fp16_compress_hook", 2e-3, [](auto g) { return fp16_compress_hook(g); }},
    {"bf16_compress_hook", 2e-2, [](auto g) { return bf16_compress_hook(g); }},
    {"fp16_compress_wrapper", 2e-3,
     [](auto g) { return fp16_compress_wrapper(g, all_reduce_hook(g)); }},
    {"bf16_compress_wrapper", 2e-2,
     [](auto g) { return bf16_compress_wrapper(g, all_reduce_hook(g)); }},
    {"post_local_sgd_hook", 1e-6,
     [](auto g) { return post_local_sgd_hook(g, std::nullopt, /*start_local_sgd_iter=*/10); }},
    // Its rank is that of the matrices of parts, so that nothing is lost.
    {"PowerSgd", 1e-4,
     [](auto g) {
       return PowerSgd(g, {.matrix_approximation_rank = 6,
                           .start_power_sgd_iter = 0,
                           .min_compression_rate = 0.1})
           .hook();
     }},
    {"PowerSgd in a cast", 1e-2,
     [](auto g) {
       return bf16_compress_wrapper(g, PowerSgd(g, {.start_power_sgd_iter = 100}).hook());
     }},
};

TEST(ComplexParameters, AreAveragedByDdpAndAllHooks) {
  for (const char* backend : {"shm", "gloo"}) {
    for (const HookOfComplex& hook : kHooksOfComplex) {
      const auto errors = run_group(2, backend, [&](ProcessGroup group) {
        ComplexOracle oracle(group.size());
        ComplexNet net;
        DistributedDataParallel ddp(net, group);
        if (hook.make) ddp.register_comm_hook(hook.make(group));
        for (int step = 0; step < 3; ++step) {  // the buckets are rebuilt after the first
          net->zero_grad();
          ddp.forward(complex_batch(group.rank(), step)).backward();
          oracle.average(step);
          require_close(*net, *oracle.net, /*gradients=*/true, hook.tolerance,
                        lockstep::str(hook.name, ", step ", step));
        }
        group.barrier();
      });
      EXPECT_EQ(errors, no_errors(2)) << hook.name << " over " << backend;
    }
  }
}

TEST(ComplexParameters, HaveAStateInPowerSgd) {
  const auto errors = run_group(2, "shm", [](ProcessGroup group) {
    const PowerSgdOptions options{.start_power_sgd_iter = 0};
    PowerSgd first(group, options), second(group, options);
    ComplexNet net;
    DistributedDataParallel ddp(net, group);
    ddp.register_comm_hook(first.hook());
    ddp.forward(complex_batch(group.rank(), 0)).backward();
    second.load_state_dict(*net, first.state_dict(*net));
    LOCKSTEP_CHECK(second.state_dict(*net).size() == first.state_dict(*net).size(), "a state");
    LOCKSTEP_CHECK(first.state_dict(*net).size() > 2, "nothing was compressed");
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(ComplexParameters, AreSteppedAndClippedByTheShardedOptimizer) {
  struct Case {
    const char* backend;
    ParameterMemory memory;
    bool adam;
  };
  for (const Case& each : {Case{"shm", ParameterMemory::kFlat, false},
                           {"shm", ParameterMemory::kFlat, true},
                           {"shm", ParameterMemory::kShared, false},
                           {"shm", ParameterMemory::kShared, true},
                           {"gloo", ParameterMemory::kFlat, true}}) {
    for (const bool clips : {false, true}) {
      const auto errors = run_group(2, each.backend, [&](ProcessGroup group) {
        at::set_num_threads(1);
        ComplexOracle oracle(group.size());
        ComplexNet net;
        DistributedDataParallel ddp(net, group, {.parameter_memory = each.memory});
        const OptimizerOptions options =
            each.adam ? OptimizerOptions(AdamOptions{.lr = 0.02})
                      : OptimizerOptions(SgdOptions{.lr = 0.05, .momentum = 0.9});
        ZeroRedundancyOptimizer optimizer(ddp.core(), *net, options);
        for (int step = 0; step < 4; ++step) {
          optimizer.zero_grad();
          ddp.forward(complex_batch(group.rank(), step)).backward();
          oracle.average(step);
          if (clips) {
            const double norm = optimizer.clip_grad_norm(0.1).item<double>();
            LOCKSTEP_CHECK(std::abs(norm / oracle.norm() - 1) < 1e-5, "norm ", norm);
            oracle.scale(0.1 / oracle.norm());
          }
          optimizer.step();
          if (each.adam) {
            oracle.step<torch::optim::Adam>(torch::optim::AdamOptions(0.02));
          } else {
            oracle.step<torch::optim::SGD>(torch::optim::SGDOptions(0.05).momentum(0.9));
          }
          require_close(*net, *oracle.net, /*gradients=*/false, 2e-5, lockstep::str("step ", step));
        }
        const NamedTensors state = optimizer.state_dict();
        optimizer.load_state_dict(state);
        group.barrier();
      });
      EXPECT_EQ(errors, no_errors(2)) << each.backend << (each.adam ? ", Adam" : ", SGD")
                                      << (each.memory == ParameterMemory::kShared ? ", shared" : "")
                                      << (clips ? ", clipped" : "");
    }
  }
}

TEST(ComplexParameters, AreAveragedPeriodically) {
  const auto errors = run_group(2, "shm", [](ProcessGroup group) {
    ComplexNet net;
    {
      const torch::NoGradGuard no_grad;
      for (auto& parameter : net->parameters()) parameter.mul_(group.rank() + 1);
    }
    PeriodicModelAverager averager(group, net->parameters(), {.period = 1});
    averager.average_parameters();
    ComplexNet expected;
    const torch::NoGradGuard no_grad;
    for (auto& parameter : expected->parameters()) parameter.mul_(1.5);
    require_close(*net, *expected, /*gradients=*/false, 1e-6, "the mean");
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(ComplexParameters, AreRefusedByNameInBatchNormalisation) {
  const auto errors = run_group(2, "shm", [](ProcessGroup group) {
    torch::nn::Sequential net(torch::nn::BatchNorm1d(2));
    net->to(torch::kComplexFloat);
    EXPECT_THAT(
        message_of<ConfigError>([&] { const auto made = convert_sync_batchnorm(*net, group); }),
        HasSubstr("convert_sync_batchnorm: '0' is ComplexFloat"));
    torch::nn::BatchNorm1d real(2);
    const auto converted = convert_sync_batchnorm(*real, group);
    EXPECT_THAT(message_of<ConfigError>([&] { real->forward(complex_numbers({3, 2}, 1)); }),
                HasSubstr("sync_batch_norm: the input is ComplexFloat, expected a real"));
    const torch::Tensor none;
    EXPECT_THAT(message_of<ConfigError>([&] {
                  sync_batch_norm(torch::ones({3, 2}), complex_numbers({2}, 1), none, none, none,
                                  0.1, 1e-5, group);
                }),
                HasSubstr("sync_batch_norm: the weight is ComplexFloat, expected a real"));
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

}  // namespace
}  // namespace lockstep
