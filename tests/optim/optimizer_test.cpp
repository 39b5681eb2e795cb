#include <lockstep/optim/optimizer.h>

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <lockstep/core/error.h>
#include <lockstep/optim/flat_runs.h>
#include <tests/optim/golden.h>
#include <tests/optim/optimizer_cases.h>
#include <tests/support/messages.h>

namespace lockstep {
namespace {

using lockstep::testing_support::FlatMemory;
using lockstep::testing_support::golden_gradient;
using lockstep::testing_support::golden_parameters;
using lockstep::testing_support::golden_skips;
using lockstep::testing_support::golden_values;
using lockstep::testing_support::joined;
using lockstep::testing_support::kGoldenSteps;
using lockstep::testing_support::kOptions;
using lockstep::testing_support::kShapes;
using lockstep::testing_support::make_net;
using lockstep::testing_support::message_of;
using lockstep::testing_support::named;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(Optimizer, SkipsParametersWithoutAGradientAsTorchDoes) {
  const std::pair<const char*, OptimizerOptions> cases[] = {
      {"sgd_skipping", SgdOptions{.lr = 0.05, .momentum = 0.9}},
      {"adam_skipping", AdamOptions{.lr = 0.02}}};
  for (const auto& [golden, options] : cases) {
    Tensors parameters = golden_parameters();
    for (auto& parameter : parameters) parameter.requires_grad_();
    Optimizer optimizer(named(parameters), options);
    for (std::int64_t step = 1; step <= kGoldenSteps; ++step) {
      for (std::size_t p = 0; p < parameters.size(); ++p) {
        parameters[p].mutable_grad() =
            golden_skips(p, step) ? torch::Tensor() : golden_gradient(p, step);
      }
      optimizer.step();
    }
    EXPECT_TRUE(torch::allclose(joined(parameters), golden_values(golden), 1e-6, 1e-6)) << golden;
  }
}

bool shares_memory(const Optimizer& optimizer) {
  const NamedTensors state = optimizer.state();
  return state[0].second.storage().is_alias_of(state[1].second.storage());
}

// Results agree bit for bit despite changes of memory: gradients move, return to their place, or
// are missing.
TEST(Optimizer, FlatRunsAreTheSameAsSingleTensors) {
  for (const OptimizerOptions& options : kOptions) {
    FlatMemory memory(kShapes);
    torch::manual_seed(2);
    for (auto& parameter : memory.views(memory.parameters)) parameter.normal_();
    Tensors flat = memory.bound();
    Tensors single;
    for (const auto& parameter : flat) single.push_back(parameter.detach().clone());
    Optimizer flat_optimizer(named(flat), options);
    Optimizer single_optimizer(named(single), options);
    for (int step = 1; step <= 12; ++step) {
      if (step == 5) memory.gradients = memory.empty();
      Tensors gradients = memory.views(memory.gradients);
      for (std::size_t i = 0; i < flat.size(); ++i) {
        const bool missing = step == 9 && i == 1;
        gradients[i].normal_();
        if (step == 5 || step == 10) flat[i].mutable_grad() = gradients[i];
        if (missing) flat[i].mutable_grad() = torch::Tensor();
        single[i].mutable_grad() = missing ? torch::Tensor() : gradients[i].clone();
      }
      flat_optimizer.step();
      single_optimizer.step();
      for (std::size_t i = 0; i < flat.size(); ++i) {
        ASSERT_TRUE(flat[i].equal(single[i])) << "step " << step << ", parameter " << i;
      }
      const NamedTensors flat_state = flat_optimizer.state();
      const NamedTensors single_state = single_optimizer.state();
      for (std::size_t i = 0; i < flat_state.size(); ++i) {
        ASSERT_TRUE(flat_state[i].second.equal(single_state[i].second)) << flat_state[i].first;
      }
      if (flat_state.empty()) continue;
      EXPECT_EQ(shares_memory(flat_optimizer), step >= 2) << step;
      EXPECT_FALSE(shares_memory(single_optimizer));
    }
    // The padding between the parameters is still zero.
    torch::Tensor rest = memory.parameters.clone();
    for (auto& parameter : memory.views(rest)) parameter.zero_();
    EXPECT_EQ(rest.count_nonzero().item<std::int64_t>(), 0);
    flat_optimizer.zero_grad();
    EXPECT_EQ(memory.gradients.count_nonzero().item<std::int64_t>(), 0);
  }
}

// Parameters without elements, before, among and behind those that lie side by side.
TEST(Optimizer, StepsParametersBesideEmptyOnes) {
  for (const OptimizerOptions& options : kOptions) {
    for (const bool on_device : {false, true}) {
      FlatMemory memory(kShapes);
      const Tensors flat = memory.bound();
      Tensors beside, single;
      for (std::size_t i = 0; i < flat.size(); ++i) {
        if (i % 2 == 0) {
          beside.push_back(torch::empty({0, 3}, torch::requires_grad()));
          beside.back().mutable_grad() = torch::empty({0, 3});
        }
        beside.push_back(flat[i]);
        single.push_back(flat[i].detach().clone());
      }
      Optimizer optimizer(named(beside), options), single_optimizer(named(single), options);
      for (Optimizer* each : {&optimizer, &single_optimizer}) each->set_capturable(on_device);
      for (int step = 1; step <= 4; ++step) {
        for (std::size_t i = 0; i < flat.size(); ++i) {
          flat[i].mutable_grad().fill_(0.5 * step - static_cast<double>(i));
          single[i].mutable_grad() = flat[i].grad().clone();
        }
        optimizer.step();
        single_optimizer.step();
        for (std::size_t i = 0; i < flat.size(); ++i) {
          ASSERT_TRUE(flat[i].equal(single[i])) << "step " << step << ", parameter " << i;
        }
      }
      const detail::FlatRuns runs(beside);
      EXPECT_TRUE(runs.useful());
      EXPECT_TRUE(runs.fit(beside)) << "empty ones do not keep the others from a run";
      optimizer.zero_grad();
      EXPECT_EQ(memory.gradients.count_nonzero().item<std::int64_t>(), 0);
      for (const auto& [name, tensor] : optimizer.state()) {
        if (name == "step.p0") {
          EXPECT_EQ(tensor.item<std::int64_t>(), 4) << "an empty one counts, too";
        } else if (name.ends_with(".p0")) {
          EXPECT_EQ(tensor.numel(), 0) << name;
        }
      }
    }
  }
}

struct RunsCase {
  const char* what;
  std::function<void(FlatMemory&, Tensors&)> change;
  std::vector<std::vector<std::size_t>> runs;
};

TEST(FlatRuns, TakesAlongOnlyWhatItMay) {
  const RunsCase cases[] = {
      {"as it is", [](FlatMemory&, Tensors&) {}, {{0, 1, 2}}},
      {"something between the parameters",
       [](FlatMemory& memory, Tensors&) { memory.parameters[250] = 1; },
       {{0}, {1, 2}}},
      {"something between the gradients",
       [](FlatMemory& memory, Tensors&) { memory.gradients[266] = 1; },
       {{0, 1}, {2}}},
      {"a zero with a sign between the gradients",
       [](FlatMemory& memory, Tensors&) { memory.gradients[266] = -0.0; },
       {{0, 1, 2}}},
      {"a gradient elsewhere",
       [](FlatMemory&, Tensors& tensors) { tensors[1].mutable_grad() = tensors[1].grad().clone(); },
       {{0}, {1}, {2}}},
      {"no gradient",
       [](FlatMemory&, Tensors& tensors) { tensors[1].mutable_grad() = torch::Tensor(); },
       {{0}, {2}}},
      {"gradients in another order",
       [](FlatMemory& memory, Tensors& tensors) {
         tensors[1].mutable_grad() = memory.gradients.narrow(0, 320, 10);
         tensors[2].mutable_grad() = memory.gradients.narrow(0, 256, 60).view({20, 3});
       },
       {{0}, {1}, {2}}},
      {"parameters listed in another order",
       [](FlatMemory&, Tensors& tensors) { std::swap(tensors[0], tensors[2]); },
       {{2, 1, 0}}},
  };
  for (const RunsCase& c : cases) {
    FlatMemory memory({{10, 5, 5}, {10}, {20, 3}});
    Tensors tensors = memory.bound();
    c.change(memory, tensors);
    const detail::FlatRuns runs(tensors);
    EXPECT_EQ(runs.members(), c.runs) << c.what;
    EXPECT_TRUE(runs.fit(tensors)) << c.what;
    tensors.back().mutable_grad() = tensors.back().grad().clone();
    EXPECT_FALSE(runs.fit(tensors)) << c.what;
  }
}

// Memory beside the parameters may belong to another optimizer and be zero only for now.
TEST(FlatRuns, LeaveAloneTheTensorsOfOthers) {
  for (const bool gradients_change : {true, false}) {
    const torch::Tensor values = torch::zeros({32});
    const torch::Tensor gradients = torch::zeros({32});
    const auto parameter = [&](std::int64_t from, std::int64_t to) {
      torch::Tensor tensor = values.slice(0, from, to).detach().requires_grad_();
      tensor.mutable_grad() = gradients.slice(0, from, to);
      return tensor;
    };
    const auto others_of = [](const torch::Tensor& flat) {
      return torch::cat({flat.slice(0, 10, 16), flat.slice(0, 26, 32)});
    };
    Optimizer optimizer(named({parameter(0, 10), parameter(16, 26)}),
                        SgdOptions{.lr = 1, .momentum = 0.9, .weight_decay = 0.5});
    for (int step = 0; step < 3; ++step) optimizer.step();
    ASSERT_TRUE(shares_memory(optimizer)) << "no runs, so that this tests nothing";

    (gradients_change ? gradients : values).fill_(1);
    optimizer.step();
    const double expected = gradients_change ? -1 : 0.5;
    EXPECT_TRUE(values.slice(0, 0, 10).eq(expected).all().item<bool>());
    EXPECT_TRUE(values.slice(0, 16, 26).eq(expected).all().item<bool>());
    EXPECT_TRUE(others_of(values).eq(gradients_change ? 0 : 1).all().item<bool>());
    optimizer.zero_grad();
    EXPECT_TRUE(others_of(gradients).eq(gradients_change ? 1 : 0).all().item<bool>());
  }
}

TEST(FlatRuns, IsOfNoUseForGradientsThatItCannotHold) {
  FlatMemory memory({{4, 4}, {16}});
  Tensors tensors = memory.bound();
  EXPECT_TRUE(detail::FlatRuns(tensors).useful());
  tensors[0].mutable_grad() = tensors[0].grad().t();
  const detail::FlatRuns runs(tensors);
  EXPECT_FALSE(runs.useful());
  EXPECT_FALSE(runs.fit(tensors));
}

TEST(FlatRuns, EndWhenAnotherParameterGetsAGradient) {
  FlatMemory memory({{16}, {16}, {16}});
  const Tensors tensors = memory.bound();
  const torch::Tensor gradient = tensors[2].grad();
  tensors[2].mutable_grad() = torch::Tensor();
  const detail::FlatRuns runs(tensors);
  EXPECT_EQ(runs.members(), (std::vector<std::vector<std::size_t>>{{0, 1}}));
  EXPECT_TRUE(runs.fit(tensors));
  tensors[2].mutable_grad() = gradient;
  EXPECT_FALSE(runs.fit(tensors));
}

// The last parameter of a run takes the rest of its 64 bytes along if both memories have it.
TEST(FlatRuns, DoNotReachBeyondTheMemoryOfEither) {
  struct Case {
    std::int64_t values, gradients, elements;
  };
  for (const Case& c : {Case{26, 26, 26}, Case{32, 32, 32}, Case{31, 31, 26}, Case{32, 26, 26},
                        Case{26, 32, 26}, Case{40, 33, 32}}) {
    const torch::Tensor values = torch::zeros({c.values}), gradients = torch::zeros({c.gradients});
    Tensors tensors;
    for (const std::int64_t begin : {0, 16}) {
      tensors.push_back(values.slice(0, begin, begin + 10).detach());
      tensors.back().mutable_grad() = gradients.slice(0, begin, begin + 10).detach();
    }
    const detail::FlatRuns runs(tensors);
    ASSERT_THAT(runs.parameters(), SizeIs(1));
    EXPECT_EQ(runs.parameters()[0].numel(), c.elements) << c.values << ' ' << c.gradients;
    EXPECT_EQ(runs.gradients()[0].numel(), c.elements) << c.values << ' ' << c.gradients;
  }
}

TEST(FlatRuns, KeepTypesOfOneStorageApart) {
  const auto values = torch::zeros({256}, torch::kByte),
             gradients = torch::zeros({256}, torch::kByte);
  Tensors tensors;
  for (const auto type : {torch::kFloat32, torch::kFloat64, torch::kFloat64, torch::kFloat32}) {
    const auto begin = static_cast<std::int64_t>(64 * tensors.size());
    const auto part = [&](const torch::Tensor& bytes) {
      return bytes.slice(0, begin, begin + 64).view(type).detach();
    };
    tensors.push_back(part(values));
    tensors.back().mutable_grad() = part(gradients);
  }
  const detail::FlatRuns runs(tensors);
  EXPECT_EQ(runs.members(), (std::vector<std::vector<std::size_t>>{{0}, {1, 2}, {3}}));
  EXPECT_EQ(runs.parameters()[1].scalar_type(), torch::kFloat64);
  EXPECT_EQ(runs.parameters()[1].numel(), 16);
}

// A zero may have a sign, whose place in the memory depends on the type.
TEST(FlatRuns, KnowTheZerosOfEveryType) {
  for (const auto type : {torch::kFloat32, torch::kFloat64, torch::kBFloat16, torch::kHalf}) {
    const auto aligned = 64 / static_cast<std::int64_t>(c10::elementSize(type));
    for (const double between : {0.0, -0.0, 1.0, -1.0}) {
      const auto values = torch::zeros({2 * aligned}, type);
      const auto gradients = torch::zeros({2 * aligned}, type);
      Tensors tensors = {values.slice(0, 0, aligned - 1).detach(),
                         values.slice(0, aligned, 2 * aligned).detach()};
      tensors[0].mutable_grad() = gradients.slice(0, 0, aligned - 1).detach();
      tensors[1].mutable_grad() = gradients.slice(0, aligned, 2 * aligned).detach();
      gradients[aligned - 1] = between;
      EXPECT_EQ(detail::FlatRuns(tensors).parameters().size(), between == 0 ? 1U : 2U)
          << type << ' ' << between;
    }
  }
}

// Runs are made without the parameter. When its gradient comes back, it is stepped again.
TEST(Optimizer, StepsAParameterWhoseGradientComesBack) {
  for (const OptimizerOptions& options : kOptions) {
    FlatMemory memory(kShapes);
    torch::manual_seed(4);
    for (auto& parameter : memory.views(memory.parameters)) parameter.normal_();
    const Tensors flat = memory.bound();
    Tensors single;
    for (const auto& parameter : flat) single.push_back(parameter.detach().clone());
    Optimizer flat_optimizer(named(flat), options), single_optimizer(named(single), options);
    for (int step = 1; step <= 8; ++step) {
      const Tensors gradients = memory.views(memory.gradients);
      for (std::size_t i = 0; i < flat.size(); ++i) {
        const bool is_missing = i == 1 && step <= 4;
        gradients[i].normal_();
        flat[i].mutable_grad() = is_missing ? torch::Tensor() : gradients[i];
        single[i].mutable_grad() = is_missing ? torch::Tensor() : gradients[i].clone();
      }
      flat_optimizer.step();
      single_optimizer.step();
      for (std::size_t i = 0; i < flat.size(); ++i) {
        ASSERT_TRUE(flat[i].equal(single[i])) << "step " << step << ", parameter " << i;
      }
    }
  }
}

// Without eps, the kernel would divide zero by zero between the parameters.
TEST(Optimizer, KeepsThePaddingZeroWithoutEps) {
  FlatMemory memory({{10}, {10}, {10}});
  memory.parameters.slice(0, 0, 10).fill_(1);
  const Tensors tensors = memory.bound();
  Optimizer optimizer(named(tensors), AdamOptions{.lr = 0.1, .eps = 0});
  for (auto& gradient : memory.views(memory.gradients)) gradient.fill_(0.5);
  for (int step = 0; step < 4; ++step) optimizer.step();
  EXPECT_TRUE(memory.parameters.isfinite().all().item<bool>());
  torch::Tensor rest = memory.parameters.clone();
  for (auto& parameter : memory.views(rest)) parameter.zero_();
  EXPECT_EQ(rest.count_nonzero().item<std::int64_t>(), 0);
  EXPECT_NEAR(tensors[0][0].item<double>(), 1 - 4 * 0.1,
              1e-5);  // by lr, as the gradient is constant
}

TEST(Optimizer, TellsAutogradOfEveryParameterOfARun) {
  FlatMemory memory({{16}, {16}});
  const Tensors tensors = memory.bound();
  Optimizer optimizer(named(tensors), SgdOptions{.momentum = 0.9});
  for (int i = 0; i < 2; ++i) optimizer.step();
  ASSERT_TRUE(shares_memory(optimizer));
  const auto output = (tensors[1] * tensors[1]).sum();
  optimizer.step();
  EXPECT_THROW(output.backward(), c10::Error);
}

TEST(Optimizer, GoesOnFromASavedState) {
  for (const OptimizerOptions& options : kOptions) {
    const auto steps = [](Tensors& parameters, Optimizer& optimizer, std::int64_t from,
                          std::int64_t to) {
      for (std::int64_t step = from; step < to; ++step) {
        for (std::size_t p = 0; p < parameters.size(); ++p) {
          parameters[p].mutable_grad() =
              golden_skips(p, step) ? torch::Tensor() : golden_gradient(p, step);
        }
        optimizer.step();
      }
    };
    Tensors whole = golden_parameters();
    Optimizer whole_optimizer(named(whole), options);
    steps(whole, whole_optimizer, 1, 6);
    Tensors resumed;
    for (const auto& parameter : whole) resumed.push_back(parameter.clone());
    Optimizer resumed_optimizer(named(resumed), options);
    const NamedTensors saved = whole_optimizer.state();
    const NamedTensors target = resumed_optimizer.state();
    ASSERT_EQ(saved.size(), target.size());
    for (std::size_t i = 0; i < saved.size(); ++i) {
      EXPECT_EQ(target[i].first, saved[i].first);
      target[i].second.copy_(saved[i].second);
    }
    steps(whole, whole_optimizer, 6, 12);
    steps(resumed, resumed_optimizer, 6, 12);
    EXPECT_TRUE(joined(resumed).equal(joined(whole)));
  }
}

TEST(Optimizer, NamesItsState) {
  torch::nn::Linear net(2, 1);
  const auto names = [&](const OptimizerOptions& options) {
    std::vector<std::string> all;
    for (const auto& [name, tensor] : Optimizer(*net, options).state()) all.push_back(name);
    return all;
  };
  EXPECT_THAT(names(SgdOptions{}), ElementsAre());
  EXPECT_THAT(names(SgdOptions{.momentum = 0.9}),
              ElementsAre("momentum_buffer.weight", "momentum_buffer.bias"));
  EXPECT_THAT(names(AdamOptions{}),
              ElementsAre("exp_avg.weight", "exp_avg.bias", "exp_avg_sq.weight", "exp_avg_sq.bias",
                          "step.weight", "step.bias"));
  EXPECT_THAT(names(AdamWOptions{.amsgrad = true}), SizeIs(8));
}

TEST(Optimizer, AcceptsGradientsAndParametersOfAnotherLayout) {
  for (const OptimizerOptions& options : kOptions) {
    auto net = make_net();
    auto other = make_net();
    Optimizer optimizer(*net, options);
    Optimizer other_optimizer(*other, options);
    for (int step = 0; step < 4; ++step) {
      if (step == 2) {
        auto weight = other->parameters()[0];
        weight.set_data(weight.detach().contiguous(torch::MemoryFormat::ChannelsLast));
      }
      for (std::size_t p = 0; p < 4; ++p) {
        auto parameter = net->parameters()[p];
        auto twin = other->parameters()[p];
        const auto gradient = torch::randn_like(parameter);
        parameter.mutable_grad() = gradient;
        // Stores the same numbers in transposed order.
        twin.mutable_grad() =
            gradient.dim() == 2 ? gradient.t().contiguous().t() : gradient.clone();
      }
      optimizer.step();
      other_optimizer.step();
    }
    for (std::size_t p = 0; p < 4; ++p) {
      EXPECT_TRUE(torch::allclose(net->parameters()[p], other->parameters()[p], 1e-6, 1e-6)) << p;
    }
  }
}

TEST(Optimizer, ZeroGradKeepsTheMemoryOfGradients) {
  auto net = make_net();
  Optimizer optimizer(*net, SgdOptions{});
  net->forward(torch::randn({1, 2, 6, 6})).sum().backward();
  const auto gradient = net->parameters()[0].grad();
  ASSERT_GT(gradient.abs().sum().item<double>(), 0);
  optimizer.zero_grad();
  EXPECT_TRUE(net->parameters()[0].grad().is_same(gradient));
  EXPECT_EQ(gradient.abs().sum().item<double>(), 0);
}

TEST(Optimizer, TakesTrainableParametersOnce) {
  struct TiedImpl : torch::nn::Module {
    torch::nn::Linear a = register_module("a", torch::nn::Linear(3, 3));
    torch::nn::Linear b = register_module("b", torch::nn::Linear(3, 3));
  };
  TiedImpl net;
  net.b->weight = net.b->register_parameter("tied", net.a->weight);
  net.a->bias.set_requires_grad(false);
  Optimizer optimizer(net, SgdOptions{.lr = 1, .momentum = 0.9});
  EXPECT_THAT(optimizer.parameters(), SizeIs(3));  // b's own weight is still registered
  const auto before = net.a->weight.detach().clone();
  net.a->weight.mutable_grad() = torch::ones({3, 3});
  optimizer.step();
  EXPECT_TRUE(torch::allclose(net.a->weight, before - 1));
}

TEST(Optimizer, RefusesAParameterWithHoles) {
  const auto parameter = torch::zeros({4, 4}).narrow(1, 0, 2);
  EXPECT_THAT(message_of<ConfigError>([&] { Optimizer({{"half", parameter}}, SgdOptions{}); }),
              HasSubstr("parameter half has strides [4, 1] for shape [4, 2], which leave holes or "
                        "overlap; make it contiguous"));
  const auto repeated = torch::zeros({1}).expand({3});
  EXPECT_THAT(message_of<ConfigError>([&] { Optimizer({{"one", repeated}}, SgdOptions{}); }),
              HasSubstr("parameter one has strides [0] for shape [3]"));
}

// A fused kernel takes all parameters at once, so that updates of the same memory would be lost.
TEST(Optimizer, RefusesParametersThatShareMemory) {
  const auto refusal = [](const NamedTensors& parameters) {
    return message_of<ConfigError>([&] { Optimizer(parameters, SgdOptions{}); });
  };
  const torch::Tensor memory = torch::zeros({12});
  const torch::Tensor tied = torch::empty({12});
  tied.set_data(memory);
  EXPECT_EQ(refusal({{"a", memory}, {"b", tied}}),
            "optimizer: parameters 'a' and 'b' share memory, so that their updates could overwrite "
            "each other; use one parameter in both places, for example torch::linear(x, "
            "embedding->weight)");
  const torch::Tensor square = torch::zeros({3, 3});
  EXPECT_THAT(refusal({{"b", torch::zeros({2})}, {"square", square}, {"turned", square.t()}}),
              HasSubstr("parameters 'square' and 'turned' share memory"));
  EXPECT_THAT(refusal({{"last", memory.slice(0, 7)}, {"first", memory.slice(0, 0, 8)}}),
              HasSubstr("parameters 'first' and 'last' share memory"));
  EXPECT_THAT(refusal({{"one", memory[11]}, {"none", torch::empty({0})}, {"all", memory}}),
              HasSubstr("parameters 'all' and 'one' share memory"));
  EXPECT_THAT(message_of<ConfigError>([&] {
                Optimizer({{.parameters = {{"a", memory}}, .options = SgdOptions{.lr = 1}},
                           {.parameters = {{"b", tied}}, .options = SgdOptions{.lr = 2}}});
              }),
              HasSubstr("parameters 'a' and 'b' share memory"));
  // Neighbours in one piece of memory share nothing, and neither does a tensor without elements.
  Optimizer({{"first", memory.slice(0, 0, 4)},
             {"none", memory.slice(0, 2, 2)},
             {"second", memory.slice(0, 4)}},
            SgdOptions{});
}

TEST(Optimizer, StepsSparseGradientsWithPlainSgdOnly) {
  torch::nn::Embedding embedding(torch::nn::EmbeddingOptions(10, 3).sparse(true));
  const auto backward = [&] {
    embedding->forward(torch::tensor({1, 4, 1})).sum().backward();
    ASSERT_TRUE(embedding->weight.grad().is_sparse());
  };
  backward();
  auto expected = embedding->weight.detach().clone();
  expected[1] -= 0.2;
  expected[4] -= 0.1;
  Optimizer sgd(*embedding, SgdOptions{.lr = 0.1});
  sgd.step();
  EXPECT_TRUE(torch::allclose(embedding->weight, expected));
  sgd.zero_grad();
  EXPECT_EQ(embedding->weight.grad()._nnz(), 0);
  backward();
  for (const OptimizerOptions& options :
       {OptimizerOptions(AdamOptions{}), OptimizerOptions(AdamWOptions{}),
        OptimizerOptions(SgdOptions{.momentum = 0.9}),
        OptimizerOptions(SgdOptions{.weight_decay = 0.1})}) {
    Optimizer optimizer(*embedding, options);
    const auto before = embedding->weight.detach().clone();
    EXPECT_THAT(message_of<ConfigError>([&] { optimizer.step(); }),
                HasSubstr("the gradient of weight is sparse; only sgd without momentum and weight "
                          "decay supports sparse gradients"));
    EXPECT_TRUE(embedding->weight.equal(before));
  }
}

}  // namespace
}  // namespace lockstep
