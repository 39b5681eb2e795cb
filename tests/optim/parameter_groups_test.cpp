// Parameter groups of Optimizer.
#include <lockstep/optim/optimizer.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <lockstep/core/error.h>
#include <tests/optim/golden.h>
#include <tests/optim/optimizer_cases.h>
#include <tests/support/messages.h>

namespace lockstep {
namespace {

using lockstep::testing_support::FlatMemory;
using lockstep::testing_support::golden_gradient;
using lockstep::testing_support::golden_parameters;
using lockstep::testing_support::joined;
using lockstep::testing_support::kOptions;
using lockstep::testing_support::kShapes;
using lockstep::testing_support::make_net;
using lockstep::testing_support::message_of;
using lockstep::testing_support::named;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::SizeIs;

OptimizerOptions with_lr_and_decay(OptimizerOptions options, double lr, double weight_decay) {
  std::visit([&](auto& of_kind) { of_kind.lr = lr, of_kind.weight_decay = weight_decay; }, options);
  return options;
}

// The first two parameters with `options`, the others with another learning rate and no weight
// decay.
std::vector<ParameterGroup> two_groups(const Tensors& parameters, const OptimizerOptions& options) {
  NamedTensors first = named(parameters);
  const NamedTensors second(first.begin() + 2, first.end());
  first.resize(2);
  return {{.parameters = first, .options = options},
          {.parameters = second, .options = with_lr_and_decay(options, 0.002, 0)}};
}

// Results agree bit for bit, whether or not parameters are adjacent in memory.
TEST(ParameterGroups, StepAsOptimizersOfTheirOwn) {
  for (const OptimizerOptions& kind : kOptions) {
    const OptimizerOptions options = with_lr_and_decay(kind, 0.01, 0.1);
    FlatMemory memory(kShapes);
    torch::manual_seed(3);
    for (auto& parameter : memory.views(memory.parameters)) parameter.normal_();
    Tensors together = memory.bound();
    Tensors apart;
    for (const auto& parameter : together) apart.push_back(parameter.detach().clone());
    Optimizer optimizer(two_groups(together, options));
    std::vector<Optimizer> alone;
    for (const ParameterGroup& group : two_groups(apart, options)) {
      alone.emplace_back(group.parameters, group.options);
    }
    EXPECT_EQ(optimizer.groups(), 2U);
    for (int step = 0; step < 6; ++step) {
      Tensors gradients = memory.views(memory.gradients);
      for (std::size_t i = 0; i < apart.size(); ++i) {
        apart[i].mutable_grad() = gradients[i].normal_().clone();
      }
      optimizer.step();
      for (Optimizer& one : alone) one.step();
      for (std::size_t i = 0; i < apart.size(); ++i) {
        ASSERT_TRUE(together[i].equal(apart[i])) << "step " << step << ", parameter " << i;
      }
    }
    NamedTensors expected = alone[0].state();
    for (const auto& item : alone[1].state()) expected.push_back(item);
    const NamedTensors state = optimizer.state();
    ASSERT_EQ(state.size(), expected.size());
    for (std::size_t i = 0; i < state.size(); ++i) {
      EXPECT_EQ(state[i].first, expected[i].first);
      EXPECT_TRUE(state[i].second.equal(expected[i].second)) << state[i].first;
    }
    optimizer.zero_grad();
    EXPECT_EQ(memory.gradients.count_nonzero().item<std::int64_t>(), 0);
    EXPECT_THAT(optimizer.parameters(), SizeIs(kShapes.size()));
  }
}

// A checkpoint of an optimizer without groups fits one with groups, because state is keyed by
// parameter name.
TEST(ParameterGroups, TakeOverAStateWithoutGroups) {
  const AdamWOptions options{.lr = 0.01};
  const auto step = [](Tensors& parameters, Optimizer& optimizer, std::int64_t number) {
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      parameters[p].mutable_grad() = golden_gradient(p, number);
    }
    optimizer.step();
  };
  Tensors before = golden_parameters();
  Optimizer without(named(before), options);
  for (int number = 1; number < 4; ++number) step(before, without, number);
  Tensors after;
  for (const auto& parameter : before) after.push_back(parameter.clone());
  std::vector<ParameterGroup> groups;  // one per parameter, in reverse order
  for (const auto& parameter : named(after)) {
    groups.insert(groups.begin(), {.parameters = {parameter}, .options = options});
  }
  Optimizer with(groups);
  const NamedTensors saved = without.state();
  const std::map<std::string, torch::Tensor> by_name(saved.begin(), saved.end());
  const NamedTensors target = with.state();
  ASSERT_EQ(target.size(), by_name.size());
  for (const auto& [name, tensor] : target) torch::Tensor(tensor).copy_(by_name.at(name));
  step(before, without, 4);
  step(after, with, 4);
  EXPECT_TRUE(joined(after).equal(joined(before)));
}

TEST(ParameterGroups, HaveLearningRatesOfTheirOwn) {
  const Tensors parameters = {torch::zeros({1}), torch::zeros({1}), torch::zeros({1})};
  Optimizer optimizer(two_groups(parameters, SgdOptions{.lr = 0.5}));
  const auto rates = [&] { return std::vector{optimizer.lr(), optimizer.lr(1)}; };
  EXPECT_THAT(rates(), ElementsAre(0.5, 0.002));
  optimizer.scale_lr(0.5);
  optimizer.scale_lr(2);  // relative to the rate in the options, not to the halved one
  EXPECT_THAT(rates(), ElementsAre(1.0, 0.004));
  optimizer.set_lr(1, 3);
  EXPECT_THAT(rates(), ElementsAre(1.0, 3.0));
  optimizer.set_lr(2);
  EXPECT_THAT(rates(), ElementsAre(2.0, 2.0));
  EXPECT_THAT(message_of<ConfigError>([&] { optimizer.set_lr(2, 1); }),
              HasSubstr("there is no parameter group 2, it has 2, counted from 0"));
}

TEST(ParameterGroups, AreOfEqualOptions) {
  auto net = make_net();  // a convolution and a linear layer, each with weight and bias
  net->push_back(torch::nn::Linear(5, 5));
  for (auto& parameter : net->ptr(3)->parameters()) parameter.set_requires_grad(false);
  net->ptr(2)->register_parameter("tied", net->parameters()[0]);
  const auto groups =
      group_parameters(*net, [](const std::string& name, const torch::Tensor& parameter) {
        AdamWOptions options{.lr = name.starts_with("2.") ? 1e-3 : 1e-4};
        if (parameter.dim() < 2) options.weight_decay = 0;
        return options;
      });
  std::vector<std::string> texts;
  for (const ParameterGroup& group : groups) {
    std::string text;
    for (const auto& [name, parameter] : group.parameters) text += name + ' ';
    const auto& options = std::get<AdamWOptions>(group.options);
    texts.push_back(lockstep::str(text, options.lr, ' ', options.weight_decay));
  }
  EXPECT_THAT(texts, ElementsAreArray({"0.weight 0.0001 0.01", "0.bias 0.0001 0",
                                       "2.weight 0.001 0.01", "2.bias 0.001 0"}));
}

// Parameters share a group only if all of their options are equal.
TEST(ParameterGroups, AreToldApartByEveryOption) {
  const std::vector<OptimizerOptions> all = {
      SgdOptions{},
      SgdOptions{.lr = 0.02},
      SgdOptions{.momentum = 0.9},
      SgdOptions{.momentum = 0.9, .nesterov = true},
      SgdOptions{.weight_decay = 0.1},
      AdamOptions{},
      AdamOptions{.lr = 0.02},
      AdamOptions{.beta1 = 0.8},
      AdamOptions{.beta2 = 0.8},
      AdamOptions{.eps = 1e-6},
      AdamOptions{.weight_decay = 0.1},
      AdamOptions{.amsgrad = true},
      AdamWOptions{},
      AdamWOptions{.lr = 0.02},
      AdamWOptions{.beta1 = 0.8},
      AdamWOptions{.beta2 = 0.8},
      AdamWOptions{.eps = 1e-6},
      AdamWOptions{.weight_decay = 0.1},
      AdamWOptions{.amsgrad = true},
      SgdOptions{.lr = std::nextafter(0.02, 1)},
  };
  for (std::size_t a = 0; a < all.size(); ++a) {
    for (std::size_t b = 0; b < all.size(); ++b) {
      EXPECT_EQ(to_settings(all[a]) == to_settings(all[b]), a == b) << a << ' ' << b;
    }
  }
  for (const double value : {0.1, 1.0 / 3, 1e-8, 5e-324, 1.7976931348623157e308, -0.5}) {
    EXPECT_EQ(std::strtod(exact_text(value).c_str(), nullptr), value);
  }
}

// Checkpoints have these names and values.
TEST(OptimizerSettings, NameEveryOption) {
  using Settings = std::map<std::string, std::string>;
  EXPECT_EQ(
      to_settings(SgdOptions{.lr = 0.25, .momentum = 0.5, .weight_decay = 0.125, .nesterov = true}),
      (Settings{{"optimizer", "sgd"},
                {"lr", "0.25"},
                {"momentum", "0.5"},
                {"weight_decay", "0.125"},
                {"nesterov", "true"}}));
  const Settings adam = {{"optimizer", "adam"}, {"lr", "0.25"},      {"betas", "0.5 0.75"},
                         {"eps", "0.0625"},     {"amsgrad", "true"}, {"weight_decay", "0.125"}};
  EXPECT_EQ(to_settings(AdamOptions{.lr = 0.25,
                                    .beta1 = 0.5,
                                    .beta2 = 0.75,
                                    .eps = 0.0625,
                                    .weight_decay = 0.125,
                                    .amsgrad = true}),
            adam);
  EXPECT_EQ(to_settings(AdamWOptions{}), (Settings{{"optimizer", "adamw"},
                                                   {"lr", "0.001"},
                                                   {"betas", "0.9 0.999"},
                                                   {"eps", "1e-08"},
                                                   {"weight_decay", "0.01"},
                                                   {"amsgrad", "false"}}));
  EXPECT_EQ(to_settings(SgdOptions{}).at("nesterov"), "false");
}

TEST(ParameterGroups, HaveMomentaThatAreSetTogether) {
  const Tensors parameters = {torch::zeros({1}), torch::zeros({1})};
  for (const auto& parameter : parameters) parameter.mutable_grad() = torch::ones({1});
  Optimizer optimizer(std::vector<ParameterGroup>{
      {.parameters = {{"a", parameters[0]}}, .options = SgdOptions{.lr = 1, .momentum = 0.5}},
      {.parameters = {{"b", parameters[1]}}, .options = SgdOptions{.lr = 1, .momentum = 0.25}}});
  const auto momenta = [&] { return std::vector{optimizer.momentum(), optimizer.momentum(1)}; };
  EXPECT_THAT(momenta(), ElementsAre(0.5, 0.25));
  optimizer.step();
  optimizer.set_momentum(0.75);
  EXPECT_THAT(momenta(), ElementsAre(0.75, 0.75));
  optimizer.step();  // by 0.75 * 1 + 1
  for (const auto& parameter : parameters) EXPECT_EQ(parameter.item<double>(), -2.75);
  for (const auto& ask : std::vector<std::function<double()>>{[&] { return optimizer.momentum(2); },
                                                              [&] { return optimizer.lr(2); }}) {
    EXPECT_THAT(message_of<ConfigError>(ask), HasSubstr("there is no parameter group 2, it has 2"));
  }
}

TEST(OptimizerMomentum, OfAdamIsItsFirstBeta) {
  for (const bool decoupled : {false, true}) {
    const auto options = [&](double beta1) {
      return decoupled ? OptimizerOptions(AdamWOptions{.lr = 0.1, .beta1 = beta1})
                       : OptimizerOptions(AdamOptions{.lr = 0.1, .beta1 = beta1});
    };
    Tensors changed = golden_parameters(), expected = golden_parameters();
    Optimizer resumed(named(changed), options(0.9)), reference(named(expected), options(0.5));
    EXPECT_EQ(resumed.momentum(), 0.9);
    resumed.set_momentum(0.5);
    EXPECT_EQ(resumed.momentum(), 0.5);
    for (std::int64_t step = 1; step <= 3; ++step) {
      for (std::size_t p = 0; p < changed.size(); ++p) {
        changed[p].mutable_grad() = golden_gradient(p, step);
        expected[p].mutable_grad() = golden_gradient(p, step);
      }
      resumed.step();
      reference.step();
    }
    EXPECT_TRUE(joined(changed).equal(joined(expected)));
  }
}

TEST(OptimizerMomentum, ThatCannotBeIsRefused) {
  struct Wrong {
    OptimizerOptions options;
    double momentum;
    const char* expected;
  };
  for (const Wrong& wrong :
       {Wrong{SgdOptions{}, 0.9, "SGD: the momentum of an optimizer without one cannot be set"},
        Wrong{SgdOptions{.momentum = 0.9}, 1.5, "SGD: momentum must be from 0 to 1"},
        Wrong{SgdOptions{.momentum = 0.9}, -0.1, "SGD: momentum must be from 0 to 1"},
        Wrong{AdamOptions{}, 1, "Adam: beta1 must be below 1, got 1"},
        Wrong{AdamOptions{}, -0.1, "Adam: beta1 must be from 0 to 1"},
        Wrong{AdamWOptions{}, 1, "AdamW: beta1 must be below 1, got 1"}}) {
    Optimizer optimizer({{"p", torch::zeros({1})}}, wrong.options);
    const double before = optimizer.momentum();
    EXPECT_THAT(message_of<ConfigError>([&] { optimizer.set_momentum(wrong.momentum); }),
                HasSubstr(wrong.expected));
    EXPECT_EQ(optimizer.momentum(), before);
  }
  EXPECT_FALSE(has_momentum(SgdOptions{}));
  EXPECT_TRUE(has_momentum(SgdOptions{.momentum = 0.1}));
  EXPECT_TRUE(has_momentum(AdamOptions{}));
  EXPECT_TRUE(has_momentum(AdamWOptions{}));
}

TEST(ParameterGroups, ThatCannotBeAreRefused) {
  const torch::Tensor a = torch::zeros({1});
  const torch::Tensor b = torch::zeros({1});
  const torch::Tensor c = torch::zeros({1});
  struct Wrong {
    std::vector<ParameterGroup> groups;
    const char* expected;
  };
  const Wrong wrongs[] = {
      {{}, "there is no group"},
      {{{{{"a", a}}, SgdOptions{}}, {{{"b", b}}, AdamOptions{}}},
       "group 1 has options of adam, group 0 of sgd; make an optimizer for each"},
      {{{{{"a", a}}, SgdOptions{}}, {{{"tied", a}}, SgdOptions{}}},
       "'tied' of group 1 is in group 0 as 'a'"},
      {{{{{"a", a}}, SgdOptions{}}, {{{"b", b}}, SgdOptions{}}, {{{"c", c}}, AdamOptions{}}},
       "group 2 has options of adam, group 0 of sgd; make an optimizer for each"},
      {{{{{"a", a}}, SgdOptions{}}, {{{"b", b}}, SgdOptions{}}, {{{"again", b}}, SgdOptions{}}},
       "'again' of group 2 is in group 1 as 'b'; a parameter belongs to one group"},
      {{{{{"a", a}}, SgdOptions{}}, {{{"a", b}}, SgdOptions{}}},
       "two parameters have the name 'a', under which their state is saved; give each its own"},
      {{{{{"a", a}}, SgdOptions{}}, {{{"b", b}}, SgdOptions{.lr = -1}}}, "lr must be"},
  };
  for (const Wrong& wrong : wrongs) {
    EXPECT_THAT(message_of<ConfigError>([&] { Optimizer optimizer(wrong.groups); }),
                HasSubstr(wrong.expected));
  }
}

// If one group refuses to step, the other groups stay unchanged.
TEST(ParameterGroups, NothingChangesWhenOneCannotStep) {
  torch::nn::Embedding embedding(torch::nn::EmbeddingOptions(4, 2).sparse(true));
  auto dense = torch::ones({2}, torch::requires_grad());
  embedding->forward(torch::tensor({1})).sum().backward();
  dense.mutable_grad() = torch::ones({2});
  Optimizer optimizer(std::vector<ParameterGroup>{
      {.parameters = {{"dense", dense}}, .options = SgdOptions{.lr = 0.1}},
      {.parameters = {{"sparse", embedding->weight}}, .options = SgdOptions{.momentum = 0.9}}});
  EXPECT_THAT(message_of<ConfigError>([&] { optimizer.step(); }),
              HasSubstr("gradient of sparse is sparse"));
  EXPECT_TRUE(dense.eq(1).all().item<bool>());
}

}  // namespace
}  // namespace lockstep
