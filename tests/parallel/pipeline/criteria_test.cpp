// Which criteria a pipeline takes, and which forward() a stage may have: what they get is read from
// their declarations.
#include <lockstep/parallel/pipeline/pipeline.h>

#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ATen/Parallel.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/loss.h>
#include <torch/nn/pimpl.h>

#include <lockstep/core/error.h>
#include <tests/parallel/pipeline/nets.h>
#include <tests/support/messages.h>

namespace lockstep {
namespace {

using testing_support::make_net;
using testing_support::message_of;
using testing_support::Net;

std::vector<torch::Device> criterion_cpus(int count) {
  return std::vector<torch::Device>(static_cast<std::size_t>(count), torch::kCPU);
}

TEST(PipelineCriterion, MayBeOfAnyKind) {
  const Net net = make_net("resnet");
  at::set_num_threads(1);
  Pipeline pipe(net.stages, criterion_cpus(4), {.micro_batches = 3, .threads_per_worker = 1});
  const double expected = pipe.step(net.criterion, net.x, net.y).item<double>();
  torch::nn::CrossEntropyLoss module;
  EXPECT_EQ(pipe.step(module, net.x, net.y).item<double>(), expected);
  const auto of_list = [](const Tensors& outputs, const torch::Tensor& y) {
    return testing_support::cross_entropy(outputs.at(0), y);
  };
  EXPECT_EQ(pipe.step(of_list, net.x, net.y).item<double>(), expected);
  EXPECT_EQ(pipe.step(std::ref(net.criterion), net.x, net.y).item<double>(), expected);
  EXPECT_EQ(pipe.step(std::ref(testing_support::cross_entropy), net.x, net.y).item<double>(),
            expected);
  EXPECT_EQ(pipe.step(std::ref(module), net.x, net.y).item<double>(), expected);
  int calls = 0;
  auto counting = [&calls, own = 0](const torch::Tensor& output, const torch::Tensor& y) mutable {
    calls = ++own;
    return testing_support::cross_entropy(output, y);
  };
  EXPECT_EQ(pipe.step(counting, net.x, net.y).item<double>(), expected);
  EXPECT_EQ(calls, 3) << "micro-batches";
}

// Returns two outputs of unlike meaning.
struct TwoHeadsImpl : torch::nn::Module {
  TwoHeadsImpl()
      : scores(register_module("scores", torch::nn::Linear(6, 3))),
        values(register_module("values", torch::nn::Linear(6, 3))) {}
  Tensors forward(const torch::Tensor& x) { return {scores->forward(x), values->forward(x)}; }
  torch::nn::Linear scores, values;
};
TORCH_MODULE(TwoHeads);

torch::Tensor loss_of_heads(const Tensors& outputs, const torch::Tensor& y) {
  return torch::mse_loss(outputs.at(0), y) + 0.5 * torch::mse_loss(outputs.at(1).tanh(), y);
}

struct HeadsLossImpl : torch::nn::Module {
  torch::Tensor forward(const Tensors& outputs, const torch::Tensor& y) {
    return loss_of_heads(outputs, y);
  }
};
TORCH_MODULE(HeadsLoss);

struct OverloadedCriterion {
  torch::Tensor operator()(const torch::Tensor& output, const torch::Tensor& y) const {
    return torch::mse_loss(output, y);
  }
  torch::Tensor operator()(const Tensors& outputs, const torch::Tensor& y) const {
    return loss_of_heads(outputs, y);
  }
};

struct OtherOverloads {
  torch::Tensor operator()(const Tensors& outputs, const torch::Tensor& y) const {
    return loss_of_heads(outputs, y);
  }
  double operator()(double scale) const { return 2 * scale; }
};

// A criterion of each kind that takes all outputs gets all of them, also where its parameter could
// be made from a single tensor.
TEST(PipelineCriterion, OfAListGetsAllOutputs) {
  at::set_num_threads(1);
  const auto net = [] {
    torch::manual_seed(2);
    return std::pair(torch::nn::Linear(4, 6), TwoHeads());
  };
  torch::manual_seed(3);
  const torch::Tensor x = torch::randn({8, 4}), y = torch::randn({8, 3});
  const auto [first, heads] = net();
  torch::nn::Linear plain_first = first;
  TwoHeads plain_heads = heads;
  const torch::Tensor expected = loss_of_heads(plain_heads->forward(plain_first->forward(x)), y);
  expected.backward();
  HeadsLoss module;
  const std::function<torch::Tensor(const Tensors&, const torch::Tensor&)> function = loss_of_heads;
  const auto of_references = [](at::TensorList outputs, const torch::Tensor& labels) {
    return loss_of_heads(outputs.vec(), labels);
  };
  const auto of_values = [](Tensors outputs, torch::Tensor labels) {
    return loss_of_heads(outputs, labels);
  };
  const auto expect_with = [&](auto&& criterion, const char* what) {
    const auto [begin, end] = net();
    Pipeline pipe({begin, end}, criterion_cpus(2), {.micro_batches = 2, .threads_per_worker = 1});
    const torch::Tensor loss = pipe.step(criterion, x, y);
    EXPECT_TRUE(loss.allclose(expected, 1e-6, 1e-7)) << what;
    const Tensors got = pipe.parameters();
    for (std::size_t i = 0; i < got.size(); ++i) {
      const Tensors wanted = i < 2 ? plain_first->parameters() : plain_heads->parameters();
      EXPECT_TRUE(got[i].grad().allclose(wanted[i < 2 ? i : i - 2].grad(), 1e-5, 1e-6))
          << what << ' ' << i;
    }
  };
  expect_with(loss_of_heads, "a function");
  expect_with(&loss_of_heads, "a pointer to a function");
  expect_with(function, "std::function");
  expect_with(module, "a module");
  expect_with(of_references, "a TensorList");
  expect_with(of_values, "values");
  expect_with(std::ref(loss_of_heads), "a reference to a function");
  expect_with(std::ref(function), "a reference to an object");
  expect_with(std::cref(of_references), "a reference to a constant");
  expect_with(std::ref(module), "a reference to a module");
  expect_with(std::bind(loss_of_heads, std::placeholders::_1, std::placeholders::_2), "std::bind");
  expect_with(OverloadedCriterion(), "overloads for one output and a list");
  expect_with(OtherOverloads(), "an overload that is no criterion");
  const auto of_any_target = [](const Tensors& outputs, const auto& labels) {
    return loss_of_heads(outputs, labels);
  };
  expect_with(of_any_target, "a generic target");
  expect_with(
      [half = std::make_unique<double>(0.5)](const Tensors& outputs,
                                             const torch::Tensor& labels) mutable {
        return torch::mse_loss(outputs.at(0), labels) +
               *half * torch::mse_loss(outputs.at(1).tanh(), labels);
      },
      "a callable that cannot be copied");
}

// With one output the overload for one is called.
TEST(PipelineCriterion, WithOverloadsGetsTheOnlyOutput) {
  at::set_num_threads(1);
  torch::manual_seed(4);
  torch::nn::Linear first(4, 6), second(6, 3);
  const torch::Tensor x = torch::randn({8, 4}), y = torch::randn({8, 3});
  Pipeline pipe({first, second}, criterion_cpus(2), {.micro_batches = 2, .threads_per_worker = 1});
  const torch::Tensor expected = torch::mse_loss(second->forward(first->forward(x)), y);
  EXPECT_TRUE(pipe.step(OverloadedCriterion(), x, y).allclose(expected, 1e-6, 1e-7));
}

// Accepts one output as well as a list.
constexpr auto kGenericCriterion = [](const auto& outputs, const auto& y) {
  return torch::mse_loss(outputs[0], y);
};
// Their bodies compile with one of the two only.
constexpr auto kGenericOfOne = [](const auto& output, const auto& y) {
  return torch::mse_loss(output.tanh(), y);
};
constexpr auto kGenericOfList = [](const auto& outputs, const auto& y) {
  return torch::mse_loss(outputs.at(0), y);
};

// Otherwise outputs[0] would be the first row of an only output. A static_assert in step() refuses
// what this function finds.
TEST(PipelineCriterion, MustDeclareWhatItTakes) {
  using pipeline::detail::has_one_meaning;
  EXPECT_FALSE(has_one_meaning<decltype(kGenericCriterion)>());
  EXPECT_FALSE(has_one_meaning<decltype(kGenericOfOne)>());
  EXPECT_FALSE(has_one_meaning<decltype(kGenericOfList)>());
  const auto bound = std::bind(kGenericCriterion, std::placeholders::_1, std::placeholders::_2);
  EXPECT_FALSE(has_one_meaning<decltype(bound)>());
  EXPECT_TRUE(has_one_meaning<OverloadedCriterion>());
  EXPECT_TRUE(has_one_meaning<torch::nn::CrossEntropyLoss>());
  EXPECT_TRUE(has_one_meaning<decltype(loss_of_heads)>());
  EXPECT_TRUE(has_one_meaning<decltype(&loss_of_heads)>());
}

struct GenericStageImpl : torch::nn::Module {
  auto forward(const auto& inputs) { return inputs[0] * 2; }
};
struct GenericListStageImpl : torch::nn::Module {
  auto forward(const auto& inputs) { return inputs.at(0) * 2; }
};
struct OverloadedStageImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& input) { return input * 2; }
  torch::Tensor forward(const Tensors& inputs) { return inputs.at(0) * 3; }
};
struct StageOfTwoOrThreeImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& a, const torch::Tensor& b) { return a + b; }
  torch::Tensor forward(const torch::Tensor& a, const torch::Tensor& b, const torch::Tensor& c) {
    return a + b + c;
  }
};

// A static_assert in StageModule's constructor refuses what this function finds.
TEST(StageModule, MustDeclareWhatItTakes) {
  EXPECT_TRUE((lockstep::detail::forward_takes_anything<GenericStageImpl, torch::Tensor>()));
  EXPECT_TRUE((lockstep::detail::forward_takes_anything<GenericListStageImpl, torch::Tensor>()));
  EXPECT_FALSE((lockstep::detail::forward_takes_anything<OverloadedStageImpl, torch::Tensor>()));
  EXPECT_FALSE((lockstep::detail::forward_takes_anything<StageOfTwoOrThreeImpl, torch::Tensor>()));
  EXPECT_FALSE(
      (lockstep::detail::forward_takes_anything<torch::nn::SequentialImpl, torch::Tensor>()));
  EXPECT_FALSE((lockstep::detail::forward_takes_anything<torch::nn::LinearImpl, torch::Tensor>()));
  EXPECT_FALSE((lockstep::detail::forward_takes_anything<TwoHeadsImpl, torch::Tensor>()));
}

TEST(StageModule, CallsTheOverloadForItsNumberOfInputs) {
  const torch::Tensor x = torch::tensor({1.0, 5.0});
  const pipeline::StageModule either(std::make_shared<OverloadedStageImpl>());
  EXPECT_TRUE(either.forward({x}).at(0).equal(x * 2));
  EXPECT_TRUE(either.forward({x, x}).at(0).equal(x * 3));
  const pipeline::StageModule several(std::make_shared<StageOfTwoOrThreeImpl>());
  EXPECT_TRUE(several.forward({x, x}).at(0).equal(x * 2));
  EXPECT_TRUE(several.forward({x, x, x}).at(0).equal(x * 3));
}

struct SumOfInputsImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor a, torch::Tensor b) { return a + 2 * b; }
};
struct SumOfThreeImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor a, torch::Tensor b, torch::Tensor c) {
    return a + 2 * b + 4 * c;
  }
};

TEST(StageModule, OfAnAnyModuleTakesOneToThreeTensors) {
  const torch::Tensor x = torch::tensor({1.0, 5.0});
  const torch::nn::AnyModule identity{torch::nn::Identity()};
  const pipeline::StageModule one(identity);
  EXPECT_TRUE(one.forward({x}).at(0).equal(x));
  const pipeline::StageModule two(torch::nn::AnyModule(std::make_shared<SumOfInputsImpl>()));
  EXPECT_TRUE(two.forward({x, x * 3}).at(0).equal(x * 7));
  const pipeline::StageModule three(torch::nn::AnyModule(std::make_shared<SumOfThreeImpl>()));
  EXPECT_TRUE(three.forward({x, x * 3, x * 5}).at(0).equal(x * 27));
  const auto refusal = [&](const Tensors& inputs) {
    return message_of<ConfigError>([&] { one.forward(inputs); });
  };
  EXPECT_EQ(refusal({}), "a stage that is an AnyModule takes one to three tensors, got 0");
  EXPECT_EQ(refusal({x, x, x, x}),
            "a stage that is an AnyModule takes one to three tensors, got 4");
}

TEST(StageModule, SaysHowManyTensorsItGets) {
  const pipeline::StageModule one(torch::nn::Identity{});
  const torch::Tensor x = torch::tensor({1.0, 5.0});
  EXPECT_TRUE(one.forward({x}).at(0).equal(x));
  EXPECT_EQ(message_of<ConfigError>([&] { one.forward({x, x}); }),
            "the stage gets 2 tensors, which its module's forward() does not take; more than 6 "
            "must be one argument, const Tensors&");
}

TEST(StageModule, NeedsAModuleAndAFunction) {
  const auto identity = [](const Tensors& inputs) { return inputs; };
  const auto refusal = [](std::shared_ptr<torch::nn::Module> module,
                          pipeline::StageModule::Forward forward) {
    return message_of<ConfigError>([&] { pipeline::StageModule(module, forward); });
  };
  const auto linear = std::make_shared<torch::nn::LinearImpl>(2, 2);
  EXPECT_EQ(refusal(nullptr, identity), "a stage of a pipeline has no module");
  EXPECT_EQ(refusal(linear, nullptr), "a stage of a pipeline has no module");
  EXPECT_EQ(refusal(linear, identity), "nothing was thrown");
}

}  // namespace
}  // namespace lockstep
