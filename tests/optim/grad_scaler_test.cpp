#include <lockstep/optim/grad_scaler.h>

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/nn/modules/embedding.h>

#include <lockstep/core/error.h>
#include <lockstep/optim/clip_grad.h>
#include <lockstep/optim/optimizer.h>
#include <tests/optim/golden.h>
#include <tests/support/messages.h>

namespace lockstep {
namespace {

using lockstep::testing_support::golden_gradient;
using lockstep::testing_support::golden_parameters;
using lockstep::testing_support::golden_values;
using lockstep::testing_support::joined;
using lockstep::testing_support::kGoldenSteps;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Tensors with_gradients(std::int64_t step, double scale = 1) {
  Tensors parameters = golden_parameters();
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    parameters[p].requires_grad_().mutable_grad() = golden_gradient(p, step) * scale;
  }
  return parameters;
}

Tensors gradients_of(const Tensors& parameters) {
  Tensors gradients;
  for (const auto& parameter : parameters) gradients.push_back(parameter.grad());
  return gradients;
}

TEST(ClipGradNorm, GivesTorchsNumbers) {
  struct Case {
    const char* golden;
    double max_norm;
    double norm_type;
  };
  for (const Case& c : {Case{"clip_2", 1.5, 2},
                        {"clip_1", 1.5, 1},
                        {"clip_inf", 0.5, INFINITY},
                        {"clip_3", 0.5, 3},
                        {"clip_0", 0.5, 0},
                        {"clip_unneeded", 1e3, 2}}) {
    const Tensors parameters = with_gradients(3);
    Tensors got = {clip_grad_norm_(parameters, c.max_norm, c.norm_type)};
    for (const auto& gradient : gradients_of(parameters)) got.push_back(gradient);
    EXPECT_TRUE(torch::allclose(joined(got), golden_values(c.golden), 1e-6, 1e-6)) << c.golden;
  }
}

// Module::parameters() lists a tied weight once per name.
TEST(ClipGradNorm, CountsAndScalesATiedWeightOnce) {
  auto tied = torch::zeros({1}, torch::requires_grad());
  auto other = torch::zeros({1}, torch::requires_grad());
  const auto set = [&] {
    tied.mutable_grad() = torch::tensor({3.0F});
    other.mutable_grad() = torch::tensor({4.0F});
  };
  const auto expect_clipped = [&](const torch::Tensor& norm) {
    EXPECT_FLOAT_EQ(norm.item<float>(), 5);
    EXPECT_NEAR(tied.grad().item<float>(), 0.6, 1e-6);
    EXPECT_NEAR(other.grad().item<float>(), 0.8, 1e-6);
  };
  set();
  expect_clipped(clip_grad_norm_({tied, other, tied}, 1));
  set();
  const Tensors gradients = {tied.grad(), tied.grad(), other.grad()};
  const torch::Tensor norm = get_total_norm(gradients);
  clip_grads_with_norm_(gradients, 1, norm);
  expect_clipped(norm);
}

TEST(GradScaler, DividesATiedWeightOnce) {
  GradScaler scaler({.init_scale = 4});
  const torch::Tensor gradient = torch::tensor({8.0F});
  scaler.unscale_({gradient, gradient});
  EXPECT_EQ(gradient.item<float>(), 2);
}

TEST(ClipGradNorm, TakesMissingSparseAndDoubleGradients) {
  auto dense = torch::zeros({2}, torch::requires_grad());
  dense.mutable_grad() = torch::tensor({0.0, 4.0});
  auto precise = torch::zeros({1}, torch::TensorOptions(torch::kFloat64).requires_grad(true));
  precise.mutable_grad() = torch::tensor({0.0}, torch::kFloat64);
  const auto without = torch::zeros({2}, torch::requires_grad());
  torch::nn::Embedding embedding(torch::nn::EmbeddingOptions(4, 1).sparse(true));
  // One row twice: the gradient is 1.5 + 1.5, not the root of 1.5^2 + 1.5^2.
  (embedding->forward(torch::tensor({2, 2})).sum() * 1.5).backward();
  const auto norm = clip_grad_norm_({dense, precise, without, embedding->weight}, 1);
  EXPECT_NEAR(norm.item<double>(), 5, 1e-6);
  EXPECT_NEAR(dense.grad()[1].item<double>(), 0.8, 1e-6);
  EXPECT_NEAR(embedding->weight.grad().to_dense()[2].item<double>(), 0.6, 1e-6);
  EXPECT_EQ(clip_grad_norm_({without}, 1).item<double>(), 0);
}

// The two halves of clip_grad_norm_() accept a sparse gradient that is not coalesced, and leave it
// uncoalesced.
TEST(ClipGradNorm, TakesSparseGradientsInItsHalves) {
  torch::nn::Embedding embedding(torch::nn::EmbeddingOptions(4, 1).sparse(true));
  (embedding->forward(torch::tensor({2, 2})).sum() * 1.5).backward();
  const torch::Tensor sparse = embedding->weight.grad();
  const torch::Tensor dense = torch::tensor({0.0F, 4.0F});
  const torch::Tensor norm = get_total_norm({sparse, dense, sparse});
  EXPECT_FLOAT_EQ(norm.item<float>(), 5);
  clip_grads_with_norm_({sparse, dense, sparse}, 1, norm);
  EXPECT_NEAR(sparse.to_dense()[2].item<double>(), 0.6, 1e-6);
  EXPECT_NEAR(dense[1].item<double>(), 0.8, 1e-6);
}

// Gradients on the meta device have no values: together with others they have no norm.
TEST(ClipGradNorm, TakesGradientsOnTheMetaDeviceOnlyAlone) {
  const auto parameter_on = [](torch::Device device) {
    auto parameter = torch::zeros({2}, torch::TensorOptions(device).requires_grad(true));
    parameter.mutable_grad() = torch::full({2}, 3.0F, torch::TensorOptions(device));
    return parameter;
  };
  const auto host = parameter_on(torch::kCPU), meta = parameter_on(torch::kMeta);
  for (const Tensors& parameters : {Tensors{host, meta}, Tensors{meta, host}}) {
    EXPECT_THAT(testing_support::message_of<ConfigError>([&] { clip_grad_norm_(parameters, 1); }),
                testing::HasSubstr("some gradients are on the meta device"));
  }
  EXPECT_TRUE(host.grad().equal(torch::full({2}, 3.0F)));
  EXPECT_TRUE(clip_grad_norm_({meta}, 1).is_meta());
  clip_grad_value_({meta, host}, 1);
  EXPECT_TRUE(host.grad().equal(torch::ones({2})));
}

// The norm's type must be neither that of the first gradient nor float16.
TEST(ClipGradNorm, OfFloat16GradientsDoesNotOverflow) {
  struct Case {
    const char* what;
    std::vector<torch::ScalarType> types;
    double value;
    double norm;
    torch::ScalarType norm_type;
  };
  for (const Case& c :
       {Case{"a wide norm", {torch::kFloat16, torch::kFloat32}, 0, 3e5, torch::kFloat32},
        {"all together", {torch::kFloat16, torch::kFloat16}, 4e4, 8e4, torch::kFloat32},
        {"each", {torch::kFloat16, torch::kFloat16}, 6e4, 1.2e5, torch::kFloat32},
        {"float32 first", {torch::kFloat32, torch::kFloat16}, 6e4, 1.2e5, torch::kFloat32},
        {"bfloat16", {torch::kBFloat16}, 1, std::sqrt(2), torch::kFloat32},
        {"float64", {torch::kFloat32, torch::kFloat64}, 3e4, 6e4, torch::kFloat64}}) {
    Tensors parameters;
    for (const auto type : c.types) {
      parameters.push_back(torch::zeros({2}, torch::dtype(type).requires_grad(true)));
      parameters.back().mutable_grad() = torch::full({2}, c.value, type);
    }
    if (c.value == 0) parameters.back().mutable_grad() = torch::tensor({3e5F, 0.0F});
    const torch::Tensor norm = clip_grad_norm_(parameters, 1);
    EXPECT_EQ(norm.scalar_type(), c.norm_type) << c.what;
    EXPECT_NEAR(norm.item<double>() / c.norm, 1, 1e-3) << c.what;
    const torch::Tensor clipped = joined(gradients_of(parameters)).to(torch::kFloat64);
    EXPECT_NEAR(clipped.norm().item<double>(), 1, 1e-2) << c.what;
  }
}

TEST(ClipGradNorm, RefusesWhatIsNotFiniteWhereAsked) {
  const Tensors parameters = with_gradients(3);
  parameters[1].mutable_grad()[0] = kInfinity;
  const auto before = joined(gradients_of(parameters));
  EXPECT_THROW(clip_grad_norm_(parameters, 1, 2, /*error_if_nonfinite=*/true), Error);
  EXPECT_TRUE(joined(gradients_of(parameters)).equal(before));
  EXPECT_EQ(clip_grad_norm_(parameters, 1).item<float>(), kInfinity);
  EXPECT_EQ(parameters[0].grad().abs().max().item<float>(), 0);
}

TEST(ClipGradNorm, RefusesNothingThatIsFinite) {
  for (const float value : {NAN, kInfinity, -kInfinity}) {
    const Tensors parameters = with_gradients(3);
    parameters[1].mutable_grad()[0] = value;
    EXPECT_THROW(clip_grad_norm_(parameters, 1, 2, /*error_if_nonfinite=*/true), Error) << value;
  }
  const Tensors parameters = with_gradients(3), same = with_gradients(3);
  const auto norm = clip_grad_norm_(parameters, 1, 2, /*error_if_nonfinite=*/true);
  EXPECT_TRUE(norm.equal(clip_grad_norm_(same, 1)));
  EXPECT_TRUE(joined(gradients_of(parameters)).equal(joined(gradients_of(same))));
}

TEST(GradScaler, GivesTorchsNumbersThroughOverflows) {
  const Tensors parameters = golden_parameters();
  NamedTensors named;
  for (const auto& parameter : parameters)
    named.emplace_back(lockstep::str("p", named.size()), parameter);
  Optimizer optimizer(named, SgdOptions{.lr = 0.05, .momentum = 0.9});
  GradScaler scaler({.init_scale = 1024, .growth_interval = 3});
  std::vector<double> scales;
  for (std::int64_t step = 1; step <= kGoldenSteps; ++step) {
    const double scale = scaler.scale(torch::ones({})).item<double>();
    EXPECT_EQ(scale, scaler.get_scale());
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      parameters[p].mutable_grad() = golden_gradient(p, step) * scale;
    }
    if (step == 4 || step == 5) {
      parameters[2].grad().view(-1)[7] = step == 4 ? kInfinity : NAN;
    }
    if (step % 2 == 0) scaler.unscale_(optimizer.gradients());  // every second step
    EXPECT_EQ(scaler.step(optimizer), step != 4 && step != 5);
    scaler.update();
    scales.push_back(scaler.get_scale());
  }
  EXPECT_TRUE(torch::allclose(joined(parameters), golden_values("scaler"), 1e-6, 1e-6));
  EXPECT_TRUE(torch::tensor(scales).to(torch::kFloat32).equal(golden_values("scaler_scales")));
}

// The device (here a CPU) decides which steps to skip. The results equal the host's bit for bit.
TEST(GradScaler, SkipsOnTheDeviceWhatTheHostSkips) {
  for (const OptimizerOptions& options : {OptimizerOptions(SgdOptions{.lr = 0.05, .momentum = 0.9}),
                                          OptimizerOptions(AdamOptions{.lr = 0.01})}) {
    std::vector<torch::Tensor> results;
    for (const bool on_device : {false, true}) {
      const Tensors parameters = golden_parameters();
      NamedTensors named;
      for (const auto& parameter : parameters) {
        named.emplace_back(lockstep::str("p", named.size()), parameter);
      }
      Optimizer optimizer(named, options);
      optimizer.set_capturable(on_device);
      GradScaler scaler({.init_scale = 1024, .growth_interval = 3});
      for (std::int64_t step = 1; step <= kGoldenSteps; ++step) {
        for (std::size_t p = 0; p < parameters.size(); ++p) {
          parameters[p].mutable_grad() = golden_gradient(p, step) * scaler.get_scale();
        }
        if (step == 2 || step == 4) parameters[1].grad().view(-1)[0] = kInfinity;
        on_device ? scaler.step_on_device(optimizer) : void(scaler.step(optimizer));
        scaler.update();
      }
      results.push_back(joined(parameters));
    }
    EXPECT_TRUE(results[0].equal(results[1]));
  }
}

TEST(GradScaler, NeedsACapturableOptimizerToSkipOnTheDevice) {
  const torch::Tensor parameter = torch::ones({4});
  parameter.mutable_grad() = torch::ones({4});
  Optimizer optimizer({{"p", parameter}}, SgdOptions{.lr = 0.1});
  GradScaler scaler;
  EXPECT_THAT(testing_support::message_of<ConfigError>([&] { scaler.step_on_device(optimizer); }),
              ::testing::HasSubstr("needs its counts there; call set_capturable(true) before"));
  EXPECT_TRUE(parameter.equal(torch::ones({4})));
}

TEST(GradScaler, GoesOnFromASavedState) {
  GradScaler first({.init_scale = 8, .growth_interval = 2});
  GradScaler second({.init_scale = 64, .growth_interval = 2});
  const Tensors parameters = with_gradients(1);
  const auto step = [&](GradScaler& scaler) {
    scaler.step(gradients_of(parameters), [] {});
    scaler.update();
  };
  step(first);
  for (std::size_t i = 0; i < 2; ++i) second.state()[i].second.copy_(first.state()[i].second);
  step(second);
  EXPECT_EQ(second.get_scale(), 16);
}

// Each rank of a sharded optimizer sees only its own gradients.
TEST(GradScaler, LetsOthersSayThatTheyFoundAnOverflow) {
  GradScaler scaler({.init_scale = 8});
  bool elsewhere = false;
  scaler.reduce_found_inf_with([&](torch::Tensor& found_inf) {
    if (elsewhere) found_inf.fill_(1);
  });
  const Tensors parameters = with_gradients(1);
  int steps = 0;
  for (const bool found : {false, true}) {
    elsewhere = found;
    EXPECT_EQ(scaler.step(gradients_of(parameters), [&] { ++steps; }), !found);
    scaler.update();
  }
  EXPECT_EQ(steps, 1);
  EXPECT_EQ(scaler.get_scale(), 4);
}

// An optimizer whose ranks agree by themselves.
struct AgreeingOptimizer {
  Tensors gradients() const { return {gradient}; }
  void reduce_found_inf(torch::Tensor& found_inf) {
    ++agreements;
    found_inf.fill_(1);
  }
  void step() { ++steps; }
  torch::Tensor gradient = torch::ones({2});
  int agreements = 0, steps = 0;
};

TEST(GradScaler, AsksTheOptimizerUnlessAnotherFunctionIsSet) {
  GradScaler scaler({.init_scale = 8});
  AgreeingOptimizer optimizer;
  EXPECT_FALSE(scaler.step(optimizer));
  scaler.update();
  EXPECT_EQ(optimizer.agreements, 1);
  int others = 0;
  scaler.reduce_found_inf_with([&](torch::Tensor&) { ++others; });
  EXPECT_TRUE(scaler.step(optimizer));
  scaler.update();
  EXPECT_EQ(optimizer.agreements, 1);
  EXPECT_EQ(others, 1);
  EXPECT_EQ(optimizer.steps, 1);
}

TEST(GradScaler, HasTorchsDefaults) {
  const GradScalerOptions defaults;
  EXPECT_EQ(defaults.growth_factor, 2);
  EXPECT_EQ(defaults.backoff_factor, 0.5);
  EXPECT_EQ(defaults.growth_interval, 2000);
  EXPECT_EQ(GradScaler().get_scale(), 65536);
}

TEST(GradScaler, UnscalesSparseAndDoubleGradients) {
  GradScaler scaler({.init_scale = 4});
  torch::nn::Embedding embedding(torch::nn::EmbeddingOptions(4, 1).sparse(true));
  scaler.scale(embedding->forward(torch::tensor({2, 3})).sum()).backward();
  const auto precise = torch::full({3}, 2.0, torch::kFloat64);
  const auto single = torch::full({3}, 6.0);
  scaler.unscale_({embedding->weight.grad(), precise, single});
  EXPECT_EQ(embedding->weight.grad().to_dense()[2].item<double>(), 1);
  EXPECT_EQ(precise[2].item<double>(), 0.5);
  EXPECT_EQ(single[0].item<double>(), 1.5);
}

TEST(GradScaler, RefusesMisuse) {
  const auto message = [](auto&& action) -> std::string {
    try {
      action();
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  GradScaler scaler;
  EXPECT_THAT(message([&] { scaler.update(); }), ::testing::HasSubstr("needs an unscale_()"));
  EXPECT_THAT(message([&] { scaler.unscale_({torch::zeros({1}, torch::kHalf)}); }),
              ::testing::HasSubstr("got float16 gradients"));
  EXPECT_THAT(message([&] { scaler.unscale_({torch::empty({1}, torch::kComplexHalf)}); }),
              ::testing::HasSubstr("got float16 gradients"));
  scaler.unscale_({torch::ones({1})});
  EXPECT_THAT(message([&] { scaler.unscale_({torch::ones({1})}); }),
              ::testing::HasSubstr("was called twice"));
  EXPECT_THAT(message([] { GradScaler({.init_scale = 0}); }),
              ::testing::HasSubstr("init_scale must be greater than 0"));
  EXPECT_THAT(message([] { GradScaler({.growth_factor = 0.5}); }),
              ::testing::HasSubstr("growth_factor must be at least 1"));
  EXPECT_THAT(message([] { GradScaler({.backoff_factor = 2}); }),
              ::testing::HasSubstr("backoff_factor must be from 0 to 1"));
  EXPECT_THAT(message([] { GradScaler({.backoff_factor = 0}); }),
              ::testing::HasSubstr("backoff_factor must be greater than 0"));
  EXPECT_THAT(message([] { GradScaler({.growth_interval = 0}); }),
              ::testing::HasSubstr("growth_interval must be at least 1"));
  EXPECT_EQ(
      message([] { GradScaler({.growth_factor = 1, .backoff_factor = 1, .growth_interval = 1}); }),
      "nothing was thrown");
}

// A growth in every step, and a scale that stays where it is.
TEST(GradScaler, FollowsItsOptions) {
  struct Case {
    GradScalerOptions options;
    std::vector<double> scales;  // after a step without overflow, one with it, and one without
  };
  for (const Case& c :
       {Case{{.init_scale = 8, .growth_factor = 4, .growth_interval = 1}, {32, 16, 64}},
        Case{{.init_scale = 8, .backoff_factor = 0.25}, {8, 2, 2}},
        Case{{.init_scale = 8, .growth_factor = 1, .backoff_factor = 1, .growth_interval = 1},
             {8, 8, 8}}}) {
    GradScaler scaler(c.options);
    std::vector<double> scales;
    for (const float value : {1.0F, kInfinity, 1.0F}) {
      scaler.unscale_({torch::tensor({value})});
      scaler.update();
      scales.push_back(scaler.get_scale());
    }
    EXPECT_EQ(scales, c.scales);
  }
}

// Checkpoints have these names.
TEST(GradScaler, NamesItsState) {
  const GradScaler scaler({.init_scale = 8});
  const auto state = scaler.state();
  ASSERT_EQ(state.size(), 2U);
  EXPECT_EQ(state[0].first, "scale");
  EXPECT_EQ(state[0].second.item<double>(), 8);
  EXPECT_EQ(state[1].first, "growth_tracker");
  EXPECT_EQ(state[1].second.item<double>(), 0);
}

// The factor is max_norm / (norm + 1e-6), as in PyTorch, and at most 1.
TEST(ClipGradNorm, AddsASmallNumberToTheNorm) {
  struct Case {
    double gradient, max_norm, expected;
  };
  for (const Case& c :
       {Case{1e-6, 5e-7, 1e-6 * (5e-7 / (1e-6 + 1e-6))}, Case{3, 3, 3 * (3 / (3 + 1e-6))},
        Case{3, 3 + 2e-6, 3}, Case{0, 0, 0}, Case{0, 1, 0}, Case{-8, 2, -8 * (2 / (8 + 1e-6))}}) {
    const auto parameter = torch::zeros({1}, torch::dtype(torch::kFloat64).requires_grad(true));
    parameter.mutable_grad() = torch::full({1}, c.gradient, torch::kFloat64);
    EXPECT_DOUBLE_EQ(clip_grad_norm_({parameter}, c.max_norm).item<double>(), std::abs(c.gradient));
    EXPECT_NEAR(parameter.grad().item<double>(), c.expected, 1e-12 * std::abs(c.expected));
  }
}

// A call in the wrong order is refused and changes nothing.
TEST(GradScaler, IsCalledInItsOrder) {
  using testing_support::message_of;
  constexpr const char* kNeedsOne = "GradScaler: update() needs an unscale_() or a step() before";
  GradScaler scaler({.init_scale = 4});
  EXPECT_EQ(message_of<ConfigError>([&] { scaler.update(); }), kNeedsOne);
  const torch::Tensor half = torch::full({2}, 8.0, torch::kHalf);
  const torch::Tensor gradient = torch::full({2}, 8.0F);
  EXPECT_EQ(message_of<ConfigError>([&] { scaler.unscale_({half}); }),
            "GradScaler: got float16 gradients; keep the parameters float32 and let autocast do "
            "the rest");
  EXPECT_EQ(message_of<ConfigError>([&] { scaler.update(); }), kNeedsOne);
  scaler.unscale_({gradient});
  EXPECT_EQ(message_of<ConfigError>([&] { scaler.unscale_({gradient}); }),
            "GradScaler: unscale_() was called twice in a step; call update() after each");
  int steps = 0;
  EXPECT_TRUE(scaler.step({gradient}, [&] { ++steps; }));
  EXPECT_TRUE(gradient.equal(torch::full({2}, 2.0F))) << "divided once";
  EXPECT_TRUE(half.equal(torch::full({2}, 8.0, torch::kHalf)));
  EXPECT_EQ(steps, 1);
  scaler.update();
  EXPECT_EQ(message_of<ConfigError>([&] { scaler.update(); }), kNeedsOne);
  EXPECT_TRUE(scaler.step({gradient}, [&] { ++steps; }));
  EXPECT_TRUE(gradient.equal(torch::full({2}, 0.5F))) << "of the next step";
  EXPECT_EQ(steps, 2);
}

TEST(ClipGradNorm, NamesTheNormThatIsNotFinite) {
  const Tensors gradients = {torch::tensor({1.0F, kInfinity}), torch::ones({2}), torch::empty({0})};
  EXPECT_EQ(testing_support::message_of<Error>(
                [&] { get_total_norm(gradients, 2, /*error_if_nonfinite=*/true); }),
            "clip_grad_norm_: the norm of 2 gradients is inf, so that they cannot be clipped");
}

}  // namespace
}  // namespace lockstep
