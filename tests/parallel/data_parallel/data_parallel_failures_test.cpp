// What DataParallel rejects, and how it reports a replica that fails.
#include <lockstep/parallel/data_parallel.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <lockstep/core/error.h>
#include <lockstep/core/strings.h>
#include <lockstep/parallel/data_parallel/replicas.h>
#include <tests/parallel/data_parallel/data_parallel_nets.h>
#include <tests/parallel/weight_on_meta.h>
#include <tests/support/messages.h>

namespace lockstep::detail::data_parallel {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_support::cpus;
using testing_support::message_of;
using testing_support::ProbedNet;
using testing_support::SmallNet;
using testing_support::squared_error;
using testing_support::WeightOnMeta;
using torch::Tensor;

// Four samples. The last two, which go to the second replica, are filled with `last`.
Tensor batch_ending_with(double last) {
  return torch::cat({torch::ones({2, 4}), torch::full({2, 4}, last)});
}

bool is_bad(const Tensor& x) { return x[0][0].item<double>() < 0; }

class DataParallelFailure : public testing::Test {
 protected:
  // Expects that `bad` throws exactly `text`, which begins with the replica's name, and that the
  // wrapper completes three more steps within two seconds.
  void expect_failure(DataParallel<ProbedNet>& dp, const std::function<void()>& bad,
                      const std::string& text) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(message_of<Error>(bad), text);
    for (int i = 0; i < 3; ++i) {
      dp.loss(squared_error, batch_ending_with(1), torch::ones({4, 3})).backward();
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
  }
};

TEST_F(DataParallelFailure, InAForwardIsNamed) {
  ProbedNet net([](const Tensor& x) {
    if (is_bad(x)) throw std::runtime_error("negative\nand more lines");
    return x;
  });
  DataParallel dp(net, cpus(2));
  expect_failure(dp, [&] { dp.forward(batch_ending_with(-1)); }, "replica 1 on cpu: negative");
}

TEST_F(DataParallelFailure, OfLibTorchIsOneLine) {
  ProbedNet net([](const Tensor& x) { return is_bad(x) ? x.narrow(1, 0, 2) : x; });
  DataParallel dp(net, cpus(2));
  const auto bad = [&] { dp.forward(batch_ending_with(-1)); };
  const std::string text = message_of<Error>(bad);
  EXPECT_THAT(text, AllOf(testing::StartsWith("replica 1 on cpu: mat1 and mat2 shapes cannot be "
                                              "multiplied"),
                          testing::Not(HasSubstr("\n"))));
  expect_failure(dp, bad, text);
}

TEST_F(DataParallelFailure, KeepsConfigErrors) {
  ProbedNet net([](const Tensor& x) {
    if (is_bad(x)) throw ConfigError("no such option");
    return x;
  });
  DataParallel dp(net, cpus(2));
  EXPECT_EQ(message_of<ConfigError>([&] { dp.forward(batch_ending_with(-1)); }),
            "replica 1 on cpu: no such option");
}

TEST_F(DataParallelFailure, InACriterionIsNamed) {
  ProbedNet net([](const Tensor& x) { return x; });
  DataParallel dp(net, cpus(2));
  const auto criterion = [](const Tensor& output, const Tensor& target) {
    if (is_bad(target)) throw std::runtime_error("a class below zero");
    return squared_error(output, target);
  };
  const Tensor target = torch::cat({torch::ones({2, 3}), torch::full({2, 3}, -1.0)});
  expect_failure(
      dp, [&] { dp.loss(criterion, batch_ending_with(1), target); },
      "replica 1 on cpu: a class below zero");
}

TEST_F(DataParallelFailure, InABackwardIsNamed) {
  ProbedNet net([](const Tensor& x) {
    const Tensor y = x * torch::ones({4}, torch::requires_grad());
    if (is_bad(x)) {
      y.register_hook([](const Tensor&) -> void { throw std::runtime_error("a bad gradient"); });
    }
    return y;
  });
  DataParallel dp(net, cpus(2));
  expect_failure(
      dp,
      [&] {
        // The net's gradient hook runs only when a gradient flows to the input.
        const Tensor x = batch_ending_with(-1).requires_grad_();
        dp.forward(x).sum().backward();
      },
      "replica 1 on cpu: a bad gradient");
}

TEST_F(DataParallelFailure, OfAReplicaThatRunsTheWrapperIsNoDeadlock) {
  std::function<void(const Tensor&)> inside = [](const Tensor&) {};
  ProbedNet net([&](const Tensor& x) {
    if (is_bad(x)) inside(x);
    return x;
  });
  DataParallel dp(net, cpus(2));
  inside = [&](const Tensor& x) { dp.forward(x.abs()); };
  expect_failure(
      dp, [&] { dp.forward(batch_ending_with(-1)); },
      "replica 1 on cpu: a replica or stage called the DataParallel or Pipeline that it belongs "
      "to, which would wait for itself");
}

// --- Rejected modules and arguments

std::string refusal(const std::vector<torch::Device>& devices,
                    const DataParallelOptions& options = {}) {
  return message_of<ConfigError>([&] { DataParallel dp(SmallNet(), devices, options); });
}

TEST(DataParallelDevices, ThatCannotBeAreRefused) {
  EXPECT_EQ(refusal({}),
            "DataParallel: devices must not be empty: give one for each replica, as in {\"cpu\", "
            "\"cpu\"}");
  EXPECT_EQ(refusal({torch::Device("cpu"), torch::Device("cuda:0")}),
            "DataParallel: all devices must be of one type, got cpu and cuda:0");
  EXPECT_EQ(message_of<ConfigError>([] { DataParallel dp(SmallNet(), {"cpu", "gpu"}); }),
            "DataParallel: \"gpu\" names no device; expected a name such as \"cpu\" or \"cuda:0\"");
}

TEST(DataParallelDevices, GpusThatAreNotThereAreRefusedInOneLine) {
  if (torch::cuda::is_available()) GTEST_SKIP() << "there is a GPU";
  for (const std::vector<torch::Device>& devices :
       {std::vector<torch::Device>{torch::Device("cuda:0"), torch::Device("cuda:1")},
        std::vector<torch::Device>{torch::Device("cuda")}}) {
    EXPECT_THAT(refusal(devices),
                AllOf(testing::StartsWith(lockstep::str("DataParallel: ", devices.front(), ' ')),
                      HasSubstr("use "), testing::Not(HasSubstr("\n"))));
  }
}

TEST(DataParallelDevices, MayRepeatTheCpuAndGiveItAnIndex) {
  DataParallel dp(SmallNet(), {"cpu", "cpu:0", "cpu"});
  EXPECT_EQ(dp.devices(), cpus(3));
  EXPECT_EQ(dp.forward(torch::ones({5, 4})).size(0), 5);
}

TEST(DataParallelWeights, ThatCannotBeAreRefused) {
  EXPECT_EQ(refusal(cpus(2), {.weights = {1, 2, 3}}),
            "DataParallel: weights must have a number for each of the 2 devices, got 3");
  for (const double weight : {0.0, -1.0, std::numeric_limits<double>::infinity()}) {
    EXPECT_THAT(refusal(cpus(2), {.weights = {1, weight}}), HasSubstr("DataParallel: weights"));
  }
}

struct NoCloneImpl : torch::nn::Module {
  Tensor forward(const Tensor& x) { return linear(x); }
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(4, 3));
};
TORCH_MODULE(NoClone);

// A net whose constructor, not reset(), registers its submodules.
struct EmptyResetImpl : torch::nn::Cloneable<EmptyResetImpl> {
  EmptyResetImpl() { linear = register_module("linear", torch::nn::Linear(4, 3)); }
  void reset() override {}
  Tensor forward(const Tensor& x) { return linear(x); }
  torch::nn::Linear linear{nullptr};
};
TORCH_MODULE(EmptyReset);

// A net whose reset() registers the existing submodule again.
struct OldPartsImpl : torch::nn::Cloneable<OldPartsImpl> {
  OldPartsImpl() { OldPartsImpl::reset(); }
  void reset() override {
    if (linear.is_empty()) linear = torch::nn::Linear(4, 3);
    register_module("linear", linear);
  }
  Tensor forward(const Tensor& x) { return linear(x); }
  torch::nn::Linear linear{nullptr};
};
TORCH_MODULE(OldParts);

// A net whose reset() registers the existing parameter again.
struct OldTensorImpl : torch::nn::Cloneable<OldTensorImpl> {
  OldTensorImpl() { OldTensorImpl::reset(); }
  void reset() override {
    if (!weight.defined()) weight = torch::ones({4});
    register_parameter("weight", weight);
  }
  Tensor forward(const Tensor& x) { return x * weight; }
  Tensor weight;
};
TORCH_MODULE(OldTensor);

template <class Net>
std::string cloning_error(Net net) {
  return message_of<ConfigError>([&] { DataParallel dp(net, cpus(2)); });
}

TEST(DataParallelModules, ThatCannotBeClonedAreRefusedInOneLine) {
  const auto says_what_to_do = AllOf(
      testing::StartsWith("DataParallel: "), HasSubstr("cannot be cloned ("),
      HasSubstr("derive it and its submodules from torch::nn::Cloneable<T> and register everything "
                "in reset()"),
      testing::Not(HasSubstr("\n")));
  EXPECT_THAT(cloning_error(NoClone()), says_what_to_do);
  EXPECT_THAT(cloning_error(EmptyReset()), says_what_to_do);
  EXPECT_THAT(cloning_error(torch::nn::Sequential(NoClone())), says_what_to_do);
  EXPECT_THAT(cloning_error(OldParts()),
              AllOf(HasSubstr("shares its torch::nn::LinearImpl with the module"),
                    HasSubstr("reset() must make its submodules and tensors anew")));
  EXPECT_THAT(cloning_error(OldTensor()),
              HasSubstr("shares the parameter 'weight' with the module"));
}

// A module whose clone() returns a module that the test has made.
struct ForgedImpl : torch::nn::Module {
  ForgedImpl() : torch::nn::Module("Forged") {}
  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& /*device*/) const override {
    return copy;
  }
  std::shared_ptr<torch::nn::Module> copy{};
};

using NamedShapes = std::vector<std::pair<std::string, std::vector<std::int64_t>>>;

std::shared_ptr<ForgedImpl> forged(const NamedShapes& parameters, const NamedShapes& buffers,
                                   int children = 0) {
  const auto net = std::make_shared<ForgedImpl>();
  for (const auto& [name, shape] : parameters) net->register_parameter(name, torch::ones(shape));
  for (const auto& [name, shape] : buffers) net->register_buffer(name, torch::ones(shape));
  for (int i = 0; i < children; ++i) {
    net->register_module(lockstep::str("child", i), std::make_shared<ForgedImpl>());
  }
  return net;
}

TEST(DataParallelModules, WhoseClonesDifferAreRefused) {
  const NamedShapes parameters{{"a", {2}}, {"b", {2}}}, buffers{{"c", {1}}};
  const auto tied = forged({{"a", {2}}}, buffers);
  tied->register_parameter("b", tied->named_parameters()["a"]);
  const auto original = forged(parameters, buffers);
  const auto sharing = forged(parameters, {});
  sharing->register_buffer("c", original->named_buffers()["c"]);
  const std::string register_all = "; reset() must register what the module has";
  const std::pair<std::shared_ptr<ForgedImpl>, std::string> clones[] = {
      {forged({{"a", {2}}}, buffers),
       " has 1 parameters, the module 2, and they differ from 'b' on" + register_all},
      {forged({{"a", {2}}, {"b", {2}}, {"x", {3}}}, buffers),
       " has 3 parameters, the module 2, and they differ from 'x' on" + register_all},
      {forged({{"a", {2}}, {"b", {4}}}, buffers),
       " has 2 parameters, the module 2, and they differ from 'b' on" + register_all},
      {forged(parameters, {}),
       " has 0 buffers, the module 1, and they differ from 'c' on" + register_all},
      {forged(parameters, buffers, 2), " has 3 modules, the module itself 1" + register_all},
      {tied, " ties its parameter 'b' to another one, the module does not" + register_all},
      {sharing,
       " shares the buffer 'c' with the module; reset() must make its submodules and tensors anew "
       "and assign them to the members"}};
  for (const auto& [clone, problem] : clones) {
    original->copy = clone;
    EXPECT_EQ(message_of<ConfigError>([&] { const Replicas replicas(*original, cpus(2)); }),
              "DataParallel: the clone of Forged" + problem);
  }
}

TEST(DataParallelModules, ThatWereReplacedAreRefused) {
  SmallNet net;
  DataParallel dp(net, cpus(2));
  for (const SmallNet& another : {SmallNet(), SmallNet(nullptr)}) {
    dp.module() = another;
    EXPECT_EQ(message_of<ConfigError>([&] { dp.forward(torch::ones({2, 4})); }),
              "DataParallel: module() is another module now; wrap it again");
  }
}

TEST(DataParallelModules, ThatAreNullAreRefused) {
  const char* const text = "DataParallel: the module is null; make the module before you wrap it";
  for (const std::size_t replicas : {1, 2}) {
    EXPECT_EQ(message_of<ConfigError>([&] {
                DataParallel dp(std::shared_ptr<torch::nn::LinearImpl>(), cpus(replicas));
              }),
              text);
    EXPECT_EQ(message_of<ConfigError>([&] { DataParallel dp(SmallNet(nullptr), cpus(replicas)); }),
              text);
  }
}

// A single device is checked as well, although nothing is cloned for it.
TEST(DataParallelModules, ThatAreElsewhereAreRefused) {
  const torch::Device meta(torch::kMeta);
  WeightOnMeta net;
  EXPECT_EQ(message_of<ConfigError>([&] { DataParallel dp(net, {meta}); }),
            "DataParallel: parameter 'weight' is on cpu, expected on meta, the first device; move "
            "the module there: module->to(device)");
  net->to(meta, /*non_blocking=*/false);
  for (const std::size_t replicas : {1, 2}) {
    EXPECT_THAT(message_of<ConfigError>([&] { DataParallel dp(net, cpus(replicas)); }),
                HasSubstr("parameter 'weight' is on meta, expected on cpu"));
  }
}

}  // namespace
}  // namespace lockstep::detail::data_parallel
