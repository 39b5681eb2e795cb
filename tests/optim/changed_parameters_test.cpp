// Parameters and gradients that change their type, shape, device or memory between an optimizer's
// steps.
#include <lockstep/optim/optimizer.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <lockstep/core/error.h>
#include <lockstep/optim/flat_runs.h>
#include <tests/optim/optimizer_cases.h>
#include <tests/support/messages.h>

namespace lockstep {
namespace {

using lockstep::testing_support::FlatMemory;
using lockstep::testing_support::kOptions;
using lockstep::testing_support::message_of;
using lockstep::testing_support::named;
using ::testing::HasSubstr;

// Two parameters with gradients, side by side in memory or apart. Neither fills whole vectors of
// 64 bytes, so that kernels process the ends of their memory separately.
Tensors two_parameters(bool flat) {
  Tensors tensors;
  for (torch::Tensor& parameter : FlatMemory({{5, 3}, {5}}).bound()) {
    parameter.detach().fill_(1);
    parameter.mutable_grad().fill_(0.5);
    tensors.push_back(flat ? parameter : parameter.detach().clone().requires_grad_());
    if (!flat) tensors.back().mutable_grad() = parameter.grad().clone();
  }
  return tensors;
}

// A change between backward() and step(), and the refusals of an optimizer with and without state.
struct ParameterChange {
  const char* name;
  std::function<void(torch::Tensor& parameter)> apply;
  std::string with_state;
  std::string without_state;
};

const std::vector<ParameterChange>& parameter_changes() {
  static const std::string now = " when the optimizer was constructed and is now ";
  static const std::string parameter = "parameter p0 is Float [5, 3] on cpu and its gradient is ";
  static const auto same = [](const char* name, std::function<void(torch::Tensor&)> apply,
                              const std::string& expected) {
    return ParameterChange{name, std::move(apply), expected, expected};
  };
  static const std::vector<ParameterChange> changes = {
      {"Module::to(dtype)", [](torch::Tensor& p) { p.set_data(p.detach().to(torch::kFloat64)); },
       "parameter p0 was Float [5, 3] on cpu" + now + "Double [5, 3] on cpu; construct it after",
       "parameter p0 is Double [5, 3] on cpu and its gradient is Float [5, 3] on cpu; call "
       "zero_grad() and run backward() again"},
      {"set_data() of a larger tensor", [](torch::Tensor& p) { p.set_data(torch::ones({500, 3})); },
       "parameter p0 was Float [5, 3] on cpu" + now + "Float [500, 3] on cpu; construct",
       "parameter p0 is Float [500, 3] on cpu and its gradient is Float [5, 3] on cpu"},
      {"set_data() of a part", [](torch::Tensor& p) { p.set_data(p.detach().narrow(0, 0, 2)); },
       "parameter p0 was Float [5, 3] on cpu" + now + "Float [2, 3] on cpu; construct",
       "parameter p0 is Float [2, 3] on cpu and its gradient is Float [5, 3] on cpu"},
      same(
          "set_data() of a tensor with holes",
          [](torch::Tensor& p) { p.set_data(torch::ones({5, 6}).narrow(1, 0, 3)); },
          "parameter p0 has strides [6, 1] for shape [5, 3], which leave holes"),
      same(
          "a gradient of another type",
          [](torch::Tensor& p) { p.mutable_grad() = torch::ones({5, 3}, torch::kHalf); },
          parameter + "Half [5, 3] on cpu"),
      same(
          "a smaller gradient", [](torch::Tensor& p) { p.mutable_grad() = torch::ones({1, 3}); },
          parameter + "Float [1, 3] on cpu"),
      same(
          "a gradient that was resized",
          [](torch::Tensor& p) { p.mutable_grad() = p.grad().clone().resize_({2}); },
          parameter + "Float [2] on cpu"),
      same(
          "a gradient on another device",
          [](torch::Tensor& p) { p.mutable_grad() = torch::ones({5, 3}, torch::kMeta); },
          parameter + "Float [5, 3] on meta"),
  };
  return changes;
}

TEST(ChangedParameters, AreRefusedByNameBeforeAnythingIsStepped) {
  for (const ParameterChange& change : parameter_changes()) {
    for (const OptimizerOptions& options : kOptions) {
      for (const bool flat : {false, true}) {
        for (const bool on_device : {false, true}) {
          Tensors tensors = two_parameters(flat);
          Optimizer optimizer(named(tensors), options);
          optimizer.set_capturable(on_device);
          for (int step = 0; step < 3; ++step) optimizer.step();  // in runs if they are flat
          const bool has_state = !optimizer.state().empty();
          change.apply(tensors[0]);
          const torch::Tensor before = tensors[0].detach().clone(),
                              other = tensors[1].detach().clone();
          EXPECT_THAT(message_of<ConfigError>([&] { optimizer.step(); }),
                      HasSubstr(has_state ? change.with_state : change.without_state))
              << change.name;
          EXPECT_TRUE(tensors[0].equal(before)) << change.name;
          EXPECT_TRUE(tensors[1].equal(other)) << change.name;
        }
      }
    }
  }
}

TEST(ChangedParameters, AreSteppedInTheirNewTypeIfThereIsNoState) {
  for (const bool flat : {false, true}) {
    Tensors tensors = two_parameters(flat);
    Optimizer sgd(named(tensors), SgdOptions{.lr = 0.125});
    for (int step = 0; step < 3; ++step) sgd.step();
    for (torch::Tensor& each : tensors) each.set_data(each.detach().to(torch::kFloat64));
    sgd.zero_grad();
    for (const torch::Tensor& each : tensors) {
      EXPECT_FALSE(each.grad().defined()) << "autograd would add to a gradient of the former type";
    }
    for (int step = 0; step < 3; ++step) {
      sgd.zero_grad();
      (tensors[0].sum() + 2 * tensors[1].sum()).backward();
      const torch::Tensor first = tensors[0].detach() - 0.125, second = tensors[1].detach() - 0.25;
      sgd.step();
      EXPECT_TRUE(tensors[0].equal(first)) << tensors[0].scalar_type();
      EXPECT_TRUE(tensors[1].equal(second)) << tensors[1].scalar_type();
    }
  }
}

// With a gradient of zeros, momentum and weight decay would move a frozen parameter.
TEST(ChangedParameters, ThatWereFrozenStayWhereTheyAre) {
  for (const OptimizerOptions& options : kOptions) {
    for (const bool flat : {false, true}) {
      for (const bool on_device : {false, true}) {
        Tensors tensors = two_parameters(flat);
        Optimizer optimizer(named(tensors), options);
        optimizer.set_capturable(on_device);
        for (int step = 0; step < 3; ++step) optimizer.step();
        const torch::Tensor before = tensors[0].detach().clone();
        tensors[0].requires_grad_(false);
        for (int step = 0; step < 3; ++step) {
          optimizer.zero_grad();
          tensors[1].mutable_grad().fill_(0.5);
          const torch::Tensor other = tensors[1].detach().clone();
          optimizer.step();
          EXPECT_TRUE(tensors[0].equal(before)) << "step " << step;
          EXPECT_FALSE(tensors[1].equal(other)) << "step " << step;
        }
        tensors[0].requires_grad_(true);
        optimizer.zero_grad();
        tensors[0].sum().backward();
        optimizer.step();
        EXPECT_FALSE(tensors[0].equal(before)) << "unfrozen again";
      }
    }
  }
}

// As with torch.optim.
TEST(ChangedParameters, ThatReplacedOthersAreNotStepped) {
  struct Outer : torch::nn::Module {
    torch::nn::Linear body = register_module("body", torch::nn::Linear(2, 2));
  };
  Outer net;
  Optimizer optimizer(net, SgdOptions{.lr = 1});
  torch::nn::Linear replacement(2, 2);
  net.replace_module("body", replacement);
  replacement->forward(torch::ones({1, 2})).sum().backward();
  const torch::Tensor before = replacement->weight.detach().clone();
  optimizer.step();
  EXPECT_TRUE(replacement->weight.equal(before));
  Optimizer(net, SgdOptions{.lr = 1}).step();
  EXPECT_TRUE(replacement->weight.equal(before - 1));
}

TEST(FlatRuns, DoNotFitOtherContentsAtTheSameAddress) {
  const std::function<void(torch::Tensor&)> changes[] = {
      [](torch::Tensor& p) { p.set_data(p.detach().narrow(0, 0, 8)); },
      [](torch::Tensor& p) { p.set_data(p.detach().view(torch::kBFloat16)); },
      [](torch::Tensor& p) { p.mutable_grad() = p.grad().narrow(0, 0, 8); },
      [](torch::Tensor& p) { p.mutable_grad() = p.grad().view(torch::kBFloat16); },
  };
  for (const auto& change : changes) {
    FlatMemory memory({{16}, {16}});
    Tensors tensors = memory.bound();
    const detail::FlatRuns runs(tensors);
    ASSERT_TRUE(runs.useful());
    ASSERT_TRUE(runs.fit(tensors));
    change(tensors[0]);
    EXPECT_FALSE(runs.fit(tensors));
  }
}

// On a GPU the kernel would read a host address.
TEST(Capturable, RefusesAFoundInfOfAnotherKind) {
  for (const OptimizerOptions& options : kOptions) {
    const Tensors tensors = two_parameters(/*flat=*/false);
    Optimizer optimizer(named(tensors), options);
    optimizer.set_capturable(true);
    for (const torch::Tensor& found_inf :
         {torch::zeros({}, torch::kFloat64), torch::zeros({2}), torch::zeros({}, torch::kMeta)}) {
      EXPECT_THAT(message_of<ConfigError>([&] { optimizer.step_unless(found_inf); }),
                  HasSubstr(", expected one Float on cpu, where the parameters are; make the "
                            "GradScaler for that device"));
    }
    EXPECT_TRUE(tensors[0].eq(1).all().item<bool>());
  }
}

}  // namespace
}  // namespace lockstep
