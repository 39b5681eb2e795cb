// Optimizers that keep learning rates and step counts in tensors, so that a CUDA graph can replay
// their steps.
#include <cmath>
#include <cstdint>
#include <iterator>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/nn/modules/embedding.h>

#include <lockstep/core/capture_scope.h>
#include <lockstep/core/error.h>
#include <lockstep/optim/device_counts.h>
#include <lockstep/optim/optimizer.h>
#include <tests/optim/golden.h>
#include <tests/optim/optimizer_cases.h>
#include <tests/support/messages.h>
#include <tests/support/recorded_calls.h>

namespace lockstep {
namespace {

using lockstep::testing_support::FlatMemory;
using lockstep::testing_support::golden_gradient;
using lockstep::testing_support::golden_parameters;
using lockstep::testing_support::golden_values;
using lockstep::testing_support::joined;
using lockstep::testing_support::kGoldenSteps;
using lockstep::testing_support::kOptions;
using lockstep::testing_support::kShapes;
using lockstep::testing_support::message_of;
using lockstep::testing_support::named;
using lockstep::testing_support::RecordedCalls;
using ::testing::HasSubstr;

double rate_of(std::int64_t step) { return 0.02 / static_cast<double>(step); }

void expect_equal(const Tensors& a, const Tensors& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].equal(b[i])) << what << " " << i;
}

void expect_equal_state(const Optimizer& a, const Optimizer& b, const std::string& what) {
  const NamedTensors of_a = a.state(), of_b = b.state();
  ASSERT_EQ(of_a.size(), of_b.size());
  for (std::size_t i = 0; i < of_a.size(); ++i) {
    EXPECT_EQ(of_a[i].first, of_b[i].first);
    EXPECT_TRUE(of_a[i].second.equal(of_b[i].second)) << what << " " << of_a[i].first;
  }
}

// Results agree bit for bit, in flat runs and tensor by tensor, also while a gradient is missing.
TEST(Capturable, GivesTheBitsOfOtherSteps) {
  for (const OptimizerOptions& options : kOptions) {
    for (const bool flat : {true, false}) {
      FlatMemory memory(kShapes);
      torch::manual_seed(2);
      for (auto& parameter : memory.views(memory.parameters)) parameter.normal_();
      Tensors plain = memory.bound();
      Tensors captured;
      FlatMemory other(kShapes);
      other.parameters.copy_(memory.parameters);
      captured = other.bound();
      Optimizer plain_optimizer(named(plain), options);
      Optimizer captured_optimizer(named(captured), options);
      captured_optimizer.set_capturable(true);
      for (std::int64_t step = 1; step <= 10; ++step) {
        const bool missing = step >= 6 && step <= 7;
        for (std::size_t i = 0; i < plain.size(); ++i) {
          const torch::Tensor gradient = torch::randn_like(plain[i].detach());
          for (Tensors* const tensors : {&plain, &captured}) {
            torch::Tensor& there = (*tensors)[i].mutable_grad();
            if (missing && i == 1) {
              there.reset();
            } else if (!flat || !there.defined()) {
              there = gradient.clone();
            } else {
              there.copy_(gradient);
            }
          }
        }
        plain_optimizer.set_lr(rate_of(step));
        captured_optimizer.set_lr(rate_of(step));
        plain_optimizer.step();
        captured_optimizer.step();
        expect_equal(plain, captured, captured_optimizer.name());
      }
      expect_equal_state(plain_optimizer, captured_optimizer, captured_optimizer.name());
    }
  }
}

TEST(Capturable, GoesOnFromStepsThatWereNotAndBack) {
  for (const OptimizerOptions& options : kOptions) {
    Tensors plain = golden_parameters(), mixed = golden_parameters();
    for (auto* const tensors : {&plain, &mixed}) {
      for (auto& tensor : *tensors) tensor.requires_grad_();
    }
    Optimizer plain_optimizer(named(plain), options), mixed_optimizer(named(mixed), options);
    for (std::int64_t step = 1; step <= 9; ++step) {
      if (step == 4) mixed_optimizer.set_capturable(true);
      if (step == 7) mixed_optimizer.set_capturable(false);
      for (std::size_t p = 0; p < plain.size(); ++p) {
        plain[p].mutable_grad() = golden_gradient(p, step);
        mixed[p].mutable_grad() = golden_gradient(p, step);
      }
      plain_optimizer.step();
      mixed_optimizer.step();
    }
    expect_equal(plain, mixed, plain_optimizer.name());
    expect_equal_state(plain_optimizer, mixed_optimizer, plain_optimizer.name());
  }
}

// A float32 represents all integers only up to 2^24, and 32 bits those below 2^32. At such a step
// the bias corrections of Adam are 1.
TEST(Capturable, CountsStepsThatAFloatDoesNotHold) {
  for (const std::int64_t before : {std::int64_t{1} << 24, std::int64_t{1} << 32}) {
    for (const bool on_device : {false, true}) {
      const auto parameter = torch::zeros({3}, torch::requires_grad());
      parameter.mutable_grad() = torch::ones({3});
      Optimizer optimizer({{"p", parameter}}, AdamOptions{.lr = 0.5});
      const auto steps = [&] {
        torch::Tensor found;
        for (const auto& [name, tensor] : optimizer.state()) {
          if (name == "step.p") found = tensor;
        }
        return found;
      };
      steps().fill_(before);
      optimizer.set_capturable(on_device);
      optimizer.step();
      EXPECT_NEAR(parameter[0].item<float>(), -0.5 * 0.1 / std::sqrt(0.001), 1e-4) << before;
      for (int step = 0; step < 2; ++step) optimizer.step();
      EXPECT_EQ(steps().item<std::int64_t>(), before + 3) << on_device;
      optimizer.set_capturable(false);
      EXPECT_EQ(steps().item<std::int64_t>(), before + 3) << on_device;
    }
  }
}

// The number that the kernels take is rounded once from the count, so it does not stop at 2^24.
TEST(DeviceCounts, GiveTheNearestFloatOfTheStep) {
  const std::int64_t start[] = {std::int64_t{1} << 24, 7, std::int64_t{1} << 24};
  detail::DeviceCounts counts({true, true, true}, start, /*counts_steps=*/true, torch::kCPU);
  for (int step = 0; step < 3; ++step) counts.advance({});
  ASSERT_EQ(counts.counts().size(), 2U);
  EXPECT_EQ(counts.counts()[0].number.item<float>(), 10);
  EXPECT_EQ(counts.counts()[1].number.item<float>(), 16777220);  // 2^24 + 3, a tie
  for (const float found_inf : {1.0F, 0.0F}) counts.advance(torch::full({1}, found_inf));
  std::int64_t steps[3] = {};
  counts.fetch(steps);
  EXPECT_THAT(steps, ::testing::ElementsAre(start[0] + 4, 11, start[0] + 4)) << "one was skipped";
}

TEST(Capturable, GivesTorchsNumbersWithATensorAsLearningRate) {
  const std::pair<const char*, OptimizerOptions> cases[] = {
      {"adam_capturable", AdamOptions{.amsgrad = true}},
      {"adamw_capturable", AdamWOptions{.weight_decay = 0.3}},
      {"sgd_capturable", SgdOptions{.momentum = 0.9, .weight_decay = 0.01, .nesterov = true}}};
  for (const auto& [golden, options] : cases) {
    Tensors parameters = golden_parameters();
    for (auto& parameter : parameters) parameter.requires_grad_();
    Optimizer optimizer(named(parameters), options);
    optimizer.set_capturable(true);
    for (std::int64_t step = 1; step <= kGoldenSteps; ++step) {
      optimizer.set_lr(rate_of(step));
      for (std::size_t p = 0; p < parameters.size(); ++p) {
        parameters[p].mutable_grad() = golden_gradient(p, step);
      }
      optimizer.step();
    }
    EXPECT_TRUE(torch::allclose(joined(parameters), golden_values(golden), 1e-6, 1e-6)) << golden;
  }
}

// A step is recorded once. Its replays follow the learning rate and advance the step count, and the
// host reads no value.
TEST(Capturable, AStepThatIsReplayedFollowsRateAndCount) {
  const std::vector<std::vector<std::int64_t>> shapes = {{4, 8}, {16}, {64}};
  for (const OptimizerOptions& options : kOptions) {
    FlatMemory plain(shapes), replayed(shapes);
    torch::manual_seed(3);
    plain.parameters.normal_();
    replayed.parameters.copy_(plain.parameters);
    Tensors plain_tensors = plain.bound(), replayed_tensors = replayed.bound();
    Optimizer plain_optimizer(named(plain_tensors), options);
    Optimizer replayed_optimizer(named(replayed_tensors), options);
    replayed_optimizer.set_capturable(true);
    RecordedCalls graph;
    for (std::int64_t step = 1; step <= 8; ++step) {
      plain.gradients.normal_();
      replayed.gradients.copy_(plain.gradients);
      plain_optimizer.set_lr(rate_of(step));
      replayed_optimizer.set_lr(rate_of(step));
      plain_optimizer.step();
      if (step == 4) {
        graph.record([&] {
          const CaptureScope capturing;
          replayed_optimizer.step();
        });
        EXPECT_GT(graph.size(), 0U);
      }
      step < 4 ? replayed_optimizer.step() : graph.replay();
      EXPECT_TRUE(plain.parameters.equal(replayed.parameters))
          << plain_optimizer.name() << " step " << step;
    }
    expect_equal_state(plain_optimizer, replayed_optimizer, plain_optimizer.name());
  }
}

// An optimizer of two parameters that has made a step, and can record the next.
struct CapturableAdam {
  CapturableAdam() {
    optimizer.set_capturable(true);
    optimizer.step();
  }
  void record(RecordedCalls& graph) {
    graph.record([this] {
      const CaptureScope capturing;
      optimizer.step();
    });
  }
  void drop_a_gradient() { tensors[1].mutable_grad().reset(); }

  FlatMemory memory = FlatMemory({{16}, {16}});
  Tensors tensors = memory.bound();
  Optimizer optimizer = Optimizer(named(tensors), AdamOptions{});
};

TEST(Capturable, ARecordedStepKeepsToItsParameters) {
  CapturableAdam adam;
  RecordedCalls graph;
  adam.record(graph);
  adam.drop_a_gradient();
  EXPECT_THAT(
      message_of<ConfigError>([&] { adam.optimizer.step(); }),
      HasSubstr("adam: other parameters have gradients than in the step that was captured"));
}

TEST(Capturable, IsRecordedWithTheParametersOfTheStepBefore) {
  CapturableAdam adam;
  adam.drop_a_gradient();
  const CaptureScope capturing;
  EXPECT_THAT(
      message_of<ConfigError>([&] { adam.optimizer.step(); }),
      HasSubstr("adam: other parameters have gradients than in the step before the captured one"));
}

// Whoever switches it off has no graph any more that could be replayed.
TEST(Capturable, ForgetsARecordedStepWhenItIsSwitchedOff) {
  CapturableAdam adam;
  {
    RecordedCalls graph;
    adam.record(graph);
  }
  adam.optimizer.set_capturable(false);
  EXPECT_FALSE(adam.optimizer.is_capturable());
  adam.optimizer.set_capturable(true);
  EXPECT_TRUE(adam.optimizer.is_capturable());
  adam.drop_a_gradient();
  EXPECT_NO_THROW(adam.optimizer.step());
}

// Each way of setting a rate reaches the device.
TEST(Capturable, FollowsEveryChangeOfARate) {
  const auto run = [](bool on_device) {
    const Tensors parameters = {torch::zeros({2}), torch::zeros({2})};
    for (const auto& parameter : parameters) parameter.mutable_grad() = torch::ones({2});
    Optimizer optimizer(std::vector<ParameterGroup>{
        {.parameters = {{"a", parameters[0]}}, .options = SgdOptions{.lr = 1}},
        {.parameters = {{"b", parameters[1]}}, .options = SgdOptions{.lr = 0.5}}});
    optimizer.set_capturable(on_device);
    std::vector<double> values;
    const auto step = [&] {
      optimizer.step();
      for (const auto& parameter : parameters) values.push_back(parameter[1].item<double>());
    };
    step();
    optimizer.set_lr(1, 0.25);
    step();
    optimizer.scale_lr(2);
    step();
    optimizer.set_lr(0.125);
    step();
    return values;
  };
  const std::vector<double> expected = {-1, -0.5, -2, -0.75, -4, -1.75, -4.125, -1.875};
  EXPECT_EQ(run(false), expected);
  EXPECT_EQ(run(true), expected);
}

TEST(Capturable, TakesAGroupWithoutParameters) {
  const auto parameter = torch::zeros({2}, torch::requires_grad());
  parameter.mutable_grad() = torch::ones({2});
  Optimizer optimizer(std::vector<ParameterGroup>{
      {.parameters = {}, .options = AdamOptions{.lr = 1}},
      {.parameters = {{"p", parameter}}, .options = AdamOptions{.lr = 0.5}}});
  optimizer.set_capturable(true);
  optimizer.set_lr(0, 2);
  optimizer.step();
  optimizer.step_unless(torch::full({}, 1.0));
  EXPECT_NEAR(parameter[0].item<double>(), -0.5, 1e-6) << "one step of Adam is that of the rate";
  for (const auto& [name, tensor] : optimizer.state()) {
    if (name == "step.p") {
      EXPECT_EQ(tensor.item<std::int64_t>(), 1);
    }
  }
  optimizer.zero_grad();
  EXPECT_EQ(parameter.grad().count_nonzero().item<std::int64_t>(), 0);
}

// Parameters with different numbers of steps, in one run of memory, keep their own numbers. In the
// first step of Adam with a constant gradient, and in every further one, a parameter moves by the
// learning rate.
TEST(Capturable, KeepsTheStepsOfParametersOfOneRunApart) {
  for (const bool on_device : {false, true}) {
    FlatMemory memory({{16}, {16}, {16}});
    const Tensors tensors = memory.bound();
    memory.gradients.fill_(1);
    Optimizer optimizer(named(tensors), AdamOptions{.lr = 0.125});
    for (const auto& [name, tensor] : optimizer.state()) {
      if (name == "step.p1") tensor.fill_(1000);
    }
    optimizer.set_capturable(on_device);
    for (int step = 0; step < 4; ++step) optimizer.step();
    for (const auto& [name, tensor] : optimizer.state()) {
      if (!name.starts_with("step.")) continue;
      EXPECT_EQ(tensor.item<std::int64_t>(), name == "step.p1" ? 1004 : 4) << name << on_device;
    }
    for (const std::size_t i : {0U, 2U}) {
      EXPECT_NEAR(tensors[i][15].item<double>(), -4 * 0.125, 1e-5) << i << on_device;
    }
    // Steps 1001 to 1004 from moments of zero, by Adam's formula in 64 bits.
    EXPECT_NEAR(tensors[1][15].item<double>(), -1.771029, 1e-4) << on_device;
  }
}

TEST(Capturable, RefusesParametersOnSeveralDevicesAndSparseGradients) {
  const Tensors apart = {torch::zeros({16}), torch::zeros({16}, torch::kMeta)};
  Optimizer on_two(named(apart), SgdOptions{});
  EXPECT_EQ(message_of<ConfigError>([&] { on_two.set_capturable(true); }),
            "sgd: a capturable optimizer has its learning rate on one device, but p0 is on cpu and "
            "p1 on meta; make an optimizer for each device");

  torch::nn::Embedding layer(torch::nn::EmbeddingOptions(4, 16).sparse(true));
  Optimizer optimizer(*layer, SgdOptions{});
  optimizer.set_capturable(true);
  layer->forward(torch::tensor({1})).sum().backward();
  EXPECT_THAT(message_of<ConfigError>([&] { optimizer.step(); }),
              HasSubstr("sgd: the gradient of weight is sparse"));
}

TEST(Capturable, RefusesToSkipByWhatIsNotOneFloatOnItsDevice) {
  const Tensors parameters = {torch::ones({16})};
  parameters[0].mutable_grad() = torch::ones({16});
  Optimizer optimizer(named(parameters), SgdOptions{.lr = 0.5});
  optimizer.set_capturable(true);
  for (const torch::Tensor& found_inf :
       {torch::zeros({}, torch::kDouble), torch::zeros({2}), torch::zeros({}, torch::kMeta)}) {
    EXPECT_THAT(message_of<ConfigError>([&] { optimizer.step_unless(found_inf); }),
                ::testing::AllOf(::testing::StartsWith("sgd: found_inf is "),
                                 ::testing::EndsWith(", expected one Float on cpu, where the "
                                                     "parameters are; make the GradScaler for that "
                                                     "device")));
    EXPECT_TRUE(parameters[0].equal(torch::ones({16})));
  }
  optimizer.step_unless(torch::zeros({1}));
  EXPECT_TRUE(parameters[0].equal(torch::full({16}, 0.5F)));
}

// A skipped step changes no parameter, no state and no count.
TEST(Capturable, LeavesEverythingAsItWasInASkippedStep) {
  std::vector<OptimizerOptions> all(std::begin(kOptions), std::end(kOptions));
  all.emplace_back(AdamOptions{.lr = 0.01, .amsgrad = true});
  for (const OptimizerOptions& options : all) {
    const Tensors plain = golden_parameters(), skipping = golden_parameters();
    Optimizer plain_optimizer(named(plain), options), skipping_optimizer(named(skipping), options);
    skipping_optimizer.set_capturable(true);
    for (std::int64_t step = 1; step <= 6; ++step) {
      const bool skips = step == 1 || step == 4;
      for (std::size_t p = 0; p < plain.size(); ++p) {
        plain[p].mutable_grad() = golden_gradient(p, step);
        skipping[p].mutable_grad() = golden_gradient(p, step);
      }
      if (!skips) plain_optimizer.step();
      skipping_optimizer.step_unless(torch::full({}, skips ? 1.0 : 0.0));
      expect_equal(plain, skipping, lockstep::str(plain_optimizer.name(), " step ", step));
    }
    expect_equal_state(plain_optimizer, skipping_optimizer, plain_optimizer.name());
  }
}

}  // namespace
}  // namespace lockstep
