#include <lockstep/optim/update_rule.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <lockstep/optim/rules.h>
#include <tests/optim/golden.h>

namespace lockstep {
namespace {

using lockstep::testing_support::golden_gradient;
using lockstep::testing_support::golden_parameters;
using lockstep::testing_support::golden_values;
using lockstep::testing_support::joined;
using lockstep::testing_support::kGoldenSteps;

struct Case {
  const char* golden;
  OptimizerOptions options;
};

const Case kCases[] = {
    {"sgd", SgdOptions{.lr = 0.1}},
    {"sgd_momentum", SgdOptions{.lr = 0.05, .momentum = 0.9}},
    {"sgd_momentum_decay", SgdOptions{.lr = 0.05, .momentum = 0.5, .weight_decay = 0.01}},
    {"sgd_nesterov",
     SgdOptions{.lr = 0.02, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true}},
    {"sgd_decay", SgdOptions{.lr = 0.1, .weight_decay = 0.1}},
    {"adam", AdamOptions{}},
    {"adam_options",
     AdamOptions{.lr = 0.02, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.05}},
    {"adam_amsgrad", AdamOptions{.lr = 0.01, .beta1 = 0.5, .beta2 = 0.6, .amsgrad = true}},
    {"adamw", AdamWOptions{}},
    {"adamw_options",
     AdamWOptions{.lr = 0.02, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.3}},
    {"adamw_amsgrad", AdamWOptions{.lr = 0.01, .beta1 = 0.5, .beta2 = 0.6, .amsgrad = true}},
};

std::vector<Tensors> zero_states(const detail::UpdateRule& rule, const Tensors& parameters) {
  std::vector<Tensors> states(rule.state_names().size());
  for (auto& state : states) {
    for (const auto& parameter : parameters) state.push_back(torch::zeros_like(parameter));
  }
  return states;
}

TEST(UpdateRule, GivesTorchsNumbersOverTwentySteps) {
  for (const Case& c : kCases) {
    const auto rule = detail::make_update_rule(c.options);
    const Tensors parameters = golden_parameters();
    const auto states = zero_states(*rule, parameters);
    for (std::int64_t step = 1; step <= kGoldenSteps; ++step) {
      Tensors gradients;
      for (std::size_t p = 0; p < parameters.size(); ++p) {
        gradients.push_back(golden_gradient(p, step));
      }
      rule->update(parameters, gradients, states, step);
    }
    EXPECT_TRUE(torch::allclose(joined(parameters), golden_values(c.golden), 1e-6, 1e-6))
        << c.golden << "\n"
        << (joined(parameters) - golden_values(c.golden)).abs().max();
  }
}

// Pieces of `flat` with the given numbers of elements, each at a multiple of `align` elements.
Tensors cut(const torch::Tensor& flat, const std::vector<std::int64_t>& sizes, std::int64_t align) {
  Tensors pieces;
  std::int64_t offset = 0;
  for (const std::int64_t size : sizes) {
    pieces.push_back(flat.narrow(0, offset, size));
    offset += (size + align - 1) / align * align;
  }
  return pieces;
}

// Sharding and flat buckets rely on this: an element's new value depends neither on its neighbours
// nor on where the tensor begins.
void expect_the_same_in_pieces(const Case& c, torch::ScalarType type, std::int64_t align) {
  const std::vector<std::int64_t> sizes = {1, 5, 16, 17, 64, 100, 31, 3000, 7};
  std::int64_t total = 0;
  for (const std::int64_t size : sizes) total += (size + align - 1) / align * align;
  const auto rule = detail::make_update_rule(c.options);
  torch::manual_seed(3);
  const torch::Tensor whole = torch::randn({total}).to(type);
  const torch::Tensor parts = whole.clone();
  const auto whole_states = zero_states(*rule, {whole});
  const auto part_states = zero_states(*rule, {parts});
  for (std::int64_t step = 1; step <= 5; ++step) {
    const torch::Tensor gradient = torch::randn({total}).to(type);
    std::vector<Tensors> cut_states;
    for (const auto& state : part_states) cut_states.push_back(cut(state[0], sizes, align));
    rule->update({whole}, {gradient}, whole_states, step);
    rule->update(cut(parts, sizes, align), cut(gradient, sizes, align), cut_states, step);
  }
  const Tensors expected = cut(whole, sizes, align);
  const Tensors got = cut(parts, sizes, align);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_TRUE(got[i].equal(expected[i])) << c.golden << " " << type << ", " << sizes[i]
                                           << " elements: " << (got[i] - expected[i]).abs().max();
  }
}

TEST(UpdateRule, GivesTheSameBitsFlatAndInPieces) {
  for (const Case& c : kCases) {
    for (const std::int64_t align : {16, 1}) {
      expect_the_same_in_pieces(c, torch::kFloat32, align);
      expect_the_same_in_pieces(c, torch::kFloat64, align);
    }
  }
}

TEST(UpdateRule, StepsTensorsOfSeveralTypesAndEmptyOnes) {
  for (const Case& c : kCases) {
    const auto rule = detail::make_update_rule(c.options);
    const auto run = [&](const Tensors& parameters) {
      Tensors gradients;
      for (const auto& parameter : parameters) gradients.push_back(parameter * 0.5 + 1);
      rule->update(parameters, gradients, zero_states(*rule, parameters), 1);
    };
    const auto start = torch::linspace(-1, 1, 20, torch::kFloat64);
    const Tensors mixed = {start.to(torch::kFloat32),  start.clone(),
                           start.to(torch::kFloat32),  torch::empty({0}),
                           start.to(torch::kBFloat16), start.to(torch::kHalf)};
    run(mixed);
    const Tensors alone = {start.clone()};
    run(alone);
    EXPECT_FALSE(alone[0].equal(start)) << c.golden;
    EXPECT_TRUE(mixed[1].equal(alone[0])) << c.golden;
    EXPECT_TRUE(mixed[2].equal(mixed[0])) << c.golden;
    EXPECT_TRUE(torch::allclose(mixed[0], alone[0].to(torch::kFloat32), 1e-6, 1e-6)) << c.golden;
    EXPECT_TRUE(torch::allclose(mixed[4].to(torch::kFloat64), alone[0], 1e-2, 1e-2)) << c.golden;
    EXPECT_TRUE(torch::allclose(mixed[5].to(torch::kFloat64), alone[0], 1e-3, 1e-3)) << c.golden;
    run({});
  }
}

// On the CPU, SGD steps 16-bit parameters by other operations than those of the fused kernel.
TEST(UpdateRule, StepsHalvesOfSgdLikeDoubles) {
  for (const Case& c : kCases) {
    if (!std::holds_alternative<SgdOptions>(c.options)) continue;
    const auto rule = detail::make_update_rule(c.options);
    for (const auto& [type, tolerance] :
         {std::pair(torch::kHalf, 4e-3), std::pair(torch::kBFloat16, 3e-2)}) {
      const Tensors halves = {torch::linspace(-1, 1, 40, torch::kFloat64).to(type)};
      const Tensors doubles = {halves[0].to(torch::kFloat64)};
      const auto states = zero_states(*rule, halves), expected_states = zero_states(*rule, doubles);
      for (std::int64_t step = 1; step <= 6; ++step) {
        const auto gradient =
            (torch::arange(40, torch::kFloat64) * (0.1 * static_cast<double>(step))).cos().to(type);
        rule->update(halves, {gradient}, states, step);
        rule->update(doubles, {gradient.to(torch::kFloat64)}, expected_states, step);
      }
      EXPECT_TRUE(torch::allclose(halves[0].to(torch::kFloat64), doubles[0], tolerance, tolerance))
          << c.golden << " " << type;
    }
  }
}

TEST(UpdateRule, StepsHalvesOfSgdByWhatLiesOnTheDevice) {
  const auto rule = detail::make_update_rule(SgdOptions{.lr = 0.5});
  for (const auto type : {torch::kHalf, torch::kBFloat16, torch::kFloat32}) {
    const Tensors parameters = {torch::ones({8}, type)};
    detail::DeviceStep step{.lr = torch::scalar_tensor(0.25, torch::kFloat64),
                            .found_inf = torch::zeros({1})};
    rule->update(parameters, {torch::ones({8}, type)}, {}, step);
    EXPECT_TRUE(parameters[0].equal(torch::full({8}, 0.75, type))) << type;
    step.found_inf = torch::ones({1});
    rule->update(parameters, {torch::ones({8}, type)}, {}, step);
    EXPECT_TRUE(parameters[0].equal(torch::full({8}, 0.75, type))) << type << ", skipped";
    step.found_inf = torch::Tensor();
    rule->update(parameters, {torch::ones({8}, type)}, {}, step);
    EXPECT_TRUE(parameters[0].equal(torch::full({8}, 0.5, type))) << type << ", not skipped";
  }
}

TEST(OptimizerNames, MakeTheRuleOfTheirName) {
  for (const std::string& name : optimizer_names()) {
    EXPECT_EQ(detail::make_update_rule(default_optimizer(name))->name(), name);
  }
  EXPECT_EQ(optimizer_names().size(), std::variant_size_v<OptimizerOptions>);
  EXPECT_THROW(default_optimizer("rmsprop"), ConfigError);
}

TEST(UpdateRule, FollowsANewLearningRate) {
  const auto rule = detail::make_update_rule(SgdOptions{.lr = 0.1});
  rule->set_lr(0.5);
  EXPECT_EQ(rule->lr(), 0.5);
  const auto parameter = torch::zeros({3});
  rule->update({parameter}, {torch::ones({3})}, {}, 1);
  EXPECT_TRUE(parameter.equal(torch::full({3}, -0.5)));
}

TEST(UpdateRule, RefusesImpossibleOptions) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::pair<OptimizerOptions, const char*> cases[] = {
      {SgdOptions{.lr = -1}, "SGD: lr must be at least 0, got -1"},
      {SgdOptions{.lr = nan}, "SGD: lr must be at least 0"},
      {SgdOptions{.momentum = 1.5}, "SGD: momentum must be from 0 to 1"},
      {SgdOptions{.momentum = -0.1}, "SGD: momentum must be from 0 to 1"},
      {SgdOptions{.weight_decay = -0.1}, "SGD: weight_decay must be at least 0"},
      {SgdOptions{.nesterov = true}, "SGD: nesterov needs a momentum above 0, got 0"},
      {AdamOptions{.lr = -1}, "Adam: lr must be at least 0, got -1"},
      {AdamOptions{.beta1 = -0.1}, "Adam: beta1 must be from 0 to 1"},
      {AdamOptions{.weight_decay = -1}, "Adam: weight_decay must be at least 0"},
      {AdamWOptions{.lr = nan}, "AdamW: lr must be at least 0"},
      {AdamWOptions{.eps = -1}, "AdamW: eps must be at least 0"},
      {AdamOptions{.beta1 = 1}, "Adam: beta1 must be below 1, got 1"},
      {AdamOptions{.eps = -1}, "Adam: eps must be at least 0"},
      {AdamWOptions{.beta2 = -0.1}, "AdamW: beta2 must be from 0 to 1"},
      {AdamWOptions{.beta2 = 1}, "AdamW: beta2 must be below 1, got 1"},
      {AdamWOptions{.weight_decay = nan}, "AdamW: weight_decay must be at least 0"},
  };
  for (const auto& [options, message] : cases) {
    try {
      detail::make_update_rule(options);
      ADD_FAILURE() << "accepted: " << message;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr(message));
    }
  }
  const OptimizerOptions accepted[] = {
      SgdOptions{.lr = 0},
      SgdOptions{.momentum = 1},
      SgdOptions{.momentum = 0.1, .nesterov = true},
      AdamOptions{.lr = 0, .beta1 = 0, .beta2 = 0, .eps = 0},
      AdamWOptions{.lr = 0, .beta1 = 0, .beta2 = 0, .eps = 0, .weight_decay = 0},
  };
  for (const OptimizerOptions& options : accepted) {
    EXPECT_NO_THROW(detail::make_update_rule(options));
  }
}

std::size_t index_in(const Tensors& all, const torch::Tensor& tensor) {
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const auto& each) { return each.is_same(tensor); });
  return static_cast<std::size_t>(found - all.begin());
}

// The calls of a kernel for parameters of these types, each as the indices of its parameters. The
// parameters are whole vectors, so that the kernel gets no copies of their ends.
std::vector<std::vector<std::size_t>> calls_for(const std::vector<torch::ScalarType>& types) {
  Tensors parameters, gradients, first_state, second_state;
  for (const torch::ScalarType type : types) {
    for (Tensors* const tensors : {&parameters, &gradients, &first_state, &second_state}) {
      tensors->push_back(torch::zeros({32}, type));
    }
  }
  std::vector<std::vector<std::size_t>> calls;
  optim::call_for_each_kind(
      parameters, gradients, {first_state, second_state},
      [&](const Tensors& its, const Tensors& its_gradients,
          const std::vector<Tensors>& its_states) {
        std::vector<std::size_t>& call = calls.emplace_back();
        EXPECT_EQ(its_states.size(), 2U);
        EXPECT_EQ(its_gradients.size(), its.size());
        for (std::size_t i = 0; i < its.size(); ++i) {
          call.push_back(index_in(parameters, its[i]));
          EXPECT_EQ(index_in(gradients, its_gradients.at(i)), call.back());
          EXPECT_EQ(index_in(first_state, its_states.at(0).at(i)), call.back());
          EXPECT_EQ(index_in(second_state, its_states.at(1).at(i)), call.back());
        }
      });
  return calls;
}

TEST(UpdateRule, CallsAKernelOnceForEachType) {
  using Calls = std::vector<std::vector<std::size_t>>;
  constexpr auto kSingle = torch::kFloat32, kDouble = torch::kFloat64, kHalf = torch::kFloat16;
  EXPECT_EQ(calls_for({}), Calls());
  EXPECT_EQ(calls_for({kSingle}), (Calls{{0}}));
  EXPECT_EQ(calls_for({kSingle, kSingle, kSingle}), (Calls{{0, 1, 2}}));
  EXPECT_EQ(calls_for({kSingle, kDouble, kSingle, kHalf, kDouble, kSingle}),
            (Calls{{0, 2, 5}, {1, 4}, {3}}));
  EXPECT_EQ(calls_for({kDouble, kSingle, kSingle, kDouble}), (Calls{{0, 3}, {1, 2}}));
  EXPECT_EQ(calls_for({kHalf, kSingle, kDouble}), (Calls{{0}, {1}, {2}}));
}

// The ends of two tensors, of one and of three floats, are stepped in one more tensor of whole
// vectors. The tensor of sixteen floats has no such end.
TEST(UpdateRule, StepsTheEndsOfTensorsInWholeVectors) {
  const Tensors parameters = {torch::full({17}, 1.0F), torch::full({16}, 2.0F),
                              torch::full({3}, 3.0F)};
  const Tensors gradients = {torch::full({17}, 10.0F), torch::full({16}, 20.0F),
                             torch::full({3}, 30.0F)};
  optim::call_for_each_kind(
      parameters, gradients, {},
      [&](const Tensors& its, const Tensors& its_gradients, const std::vector<Tensors>&) {
        ASSERT_EQ(its.size(), 4U);
        ASSERT_EQ(its_gradients.size(), 4U);
        const auto ends = [](float first, float last) {
          torch::Tensor expected = torch::zeros({32});
          expected[0].fill_(first);
          expected.narrow(0, 16, 3).fill_(last);
          return expected;
        };
        EXPECT_TRUE(its[3].equal(ends(1, 3))) << its[3];
        EXPECT_TRUE(its_gradients[3].equal(ends(10, 30))) << its_gradients[3];
        for (const torch::Tensor& each : its) each.add_(1);
        its[3].add_(5);
      });
  torch::Tensor first = torch::full({17}, 2.0F);
  first[16].fill_(7);
  EXPECT_TRUE(parameters[0].equal(first)) << parameters[0];
  EXPECT_TRUE(parameters[1].equal(torch::full({16}, 3.0F))) << parameters[1];
  EXPECT_TRUE(parameters[2].equal(torch::full({3}, 9.0F))) << parameters[2];
}

// The padding of flat parameters is zero, with gradients of zero. Without eps, Adam divides zero by
// zero.
TEST(UpdateRule, KeepsZerosUnlessItDividesByZero) {
  for (const Case& c : kCases) {
    EXPECT_TRUE(detail::keeps_zeros(*detail::make_update_rule(c.options))) << c.golden;
  }
  EXPECT_FALSE(detail::keeps_zeros(*detail::make_update_rule(AdamOptions{.eps = 0})));
  EXPECT_FALSE(detail::keeps_zeros(*detail::make_update_rule(AdamWOptions{.eps = 0})));
}

}  // namespace
}  // namespace lockstep
