// Complex parameters, gradients that are lazy conjugates or negatives, and the versions of what an
// optimizer writes. The oracle is torch::optim on plain tensors.
#include <lockstep/optim/optimizer.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/embedding.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <lockstep/core/error.h>
#include <lockstep/optim/clip_grad.h>
#include <lockstep/optim/grad_scaler.h>
#include <tests/optim/optimizer_cases.h>
#include <tests/support/messages.h>

namespace lockstep {
namespace {

using lockstep::testing_support::kOptions;
using lockstep::testing_support::message_of;
using lockstep::testing_support::named;
using ::testing::HasSubstr;

// Numbers without a pattern, the same in each call.
torch::Tensor numbers(at::IntArrayRef shape, torch::ScalarType type, double phase) {
  const auto count = c10::multiply_integers(shape);
  const auto angles = torch::arange(count, torch::kFloat64) * 12.9 + phase;
  if (!c10::isComplexType(type)) return angles.sin().view(shape).to(type);
  return torch::complex(angles.sin(), (angles * 1.7).cos()).view(shape).to(type);
}

std::unique_ptr<torch::optim::Optimizer> torchs_optimizer(const OptimizerOptions& options,
                                                          const Tensors& parameters) {
  if (const auto* sgd = std::get_if<SgdOptions>(&options)) {
    return std::make_unique<torch::optim::SGD>(parameters, torch::optim::SGDOptions(sgd->lr)
                                                               .momentum(sgd->momentum)
                                                               .weight_decay(sgd->weight_decay)
                                                               .nesterov(sgd->nesterov));
  }
  if (const auto* adam = std::get_if<AdamOptions>(&options)) {
    return std::make_unique<torch::optim::Adam>(
        parameters, torch::optim::AdamOptions(adam->lr).weight_decay(adam->weight_decay));
  }
  const auto& adamw = std::get<AdamWOptions>(options);
  return std::make_unique<torch::optim::AdamW>(
      parameters,
      torch::optim::AdamWOptions(adamw.lr).weight_decay(adamw.weight_decay).amsgrad(adamw.amsgrad));
}

// The values of a gradient, and the same values as a lazy view.
torch::Tensor lazy(const torch::Tensor& values) {
  return values.is_complex() ? values.conj().resolve_conj().conj()
                             : at::_neg_view(values.neg().clone());
}

// As torch.optim in Python does, the oracle steps views of the real and imaginary parts.
torch::Tensor real_leaf(const torch::Tensor& tensor) {
  const auto copy = tensor.detach().clone();
  return (copy.is_complex() ? at::view_as_real(copy) : copy).requires_grad_();
}

torch::Tensor as_real(const torch::Tensor& tensor) {
  const auto plain = tensor.detach().resolve_conj().resolve_neg();
  return plain.is_complex() ? at::view_as_real(plain) : plain;
}

Tensors make_parameters() {
  Tensors parameters = {numbers({3, 5}, torch::kComplexFloat, 1), numbers({4}, torch::kFloat32, 2),
                        numbers({7}, torch::kComplexDouble, 3),
                        numbers({2, 3, 2, 2}, torch::kComplexFloat, 4),
                        numbers({}, torch::kComplexFloat, 5)};
  parameters[3] = parameters[3].contiguous(torch::MemoryFormat::ChannelsLast);
  for (auto& parameter : parameters) parameter.requires_grad_();
  return parameters;
}

TEST(OptimizerOfComplex, GivesTorchsNumbersForPlainAndLazyGradients) {
  for (std::size_t o = 0; o < std::size(kOptions); ++o) {
    for (const bool is_lazy : {false, true}) {
      for (const bool on_device : {false, true}) {
        const Tensors parameters = make_parameters();
        Tensors expected;
        for (const auto& parameter : parameters) expected.push_back(real_leaf(parameter));
        Optimizer optimizer(named(parameters), kOptions[o]);
        if (on_device) optimizer.set_capturable(true);
        const auto oracle = torchs_optimizer(kOptions[o], expected);
        for (int step = 0; step < 4; ++step) {
          for (std::size_t i = 0; i < parameters.size(); ++i) {
            const auto gradient = numbers(parameters[i].sizes(), parameters[i].scalar_type(),
                                          10 * step + static_cast<double>(i));
            parameters[i].mutable_grad() = is_lazy ? lazy(gradient) : gradient;
            expected[i].mutable_grad() = as_real(gradient);
          }
          optimizer.step();
          oracle->step();
        }
        for (std::size_t i = 0; i < parameters.size(); ++i) {
          EXPECT_TRUE(torch::allclose(as_real(parameters[i]), expected[i], 1e-5, 1e-6))
              << "options " << o << ", parameter " << i << (is_lazy ? ", lazy" : "");
        }
        optimizer.zero_grad();
        for (const auto& parameter : parameters) {
          EXPECT_EQ(parameter.grad().abs().sum().item<double>(), 0) << "zero_grad";
        }
      }
    }
  }
}

// Side by side in memory, as in DistributedDataParallel, with gradients that become lazy conjugates
// or negatives at the same address.
void expect_flat_like_single(const OptimizerOptions& options, torch::ScalarType type) {
  const auto make = [type](bool flat) {
    const auto memory = numbers({24}, type, 1);
    const auto gradients = torch::zeros({24}, type);
    Tensors parameters;
    for (int i = 0; i < 3; ++i) {
      const auto place = [&](const torch::Tensor& from) {
        return from.narrow(0, 8 * i, 8).detach();
      };
      parameters.push_back(flat ? place(memory) : place(memory).clone());
      parameters.back().requires_grad_().mutable_grad() =
          flat ? place(gradients) : place(gradients).clone();
    }
    return parameters;
  };
  const Tensors flat = make(true), single = make(false);
  Optimizer flat_optimizer(named(flat), options), single_optimizer(named(single), options);
  for (int step = 0; step < 5; ++step) {
    for (std::size_t i = 0; i < 3; ++i) {
      const auto gradient = numbers({8}, type, 10.0 * step + static_cast<double>(i));
      for (const Tensors* each : {&flat, &single}) {
        torch::Tensor& place = (*each)[i].mutable_grad();
        if (step == 3 || step == 4) {  // lazy, then plain again
          place = place.is_complex() ? place.conj() : at::_neg_view(place);
        }
        place.copy_(gradient);
      }
    }
    flat_optimizer.step();
    single_optimizer.step();
    for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(flat[i].equal(single[i])) << step;
  }
}

TEST(OptimizerOfComplex, StepsFlatMemoryLikeSingleTensors) {
  for (const OptimizerOptions& options : kOptions) {
    for (const auto type : {torch::kComplexFloat, torch::kFloat32}) {
      SCOPED_TRACE(type);
      expect_flat_like_single(options, type);
    }
  }
}

TEST(OptimizerOfComplex, RefusesAParameterThatIsLazy) {
  const auto parameter = numbers({4}, torch::kComplexFloat, 1).conj();
  EXPECT_THAT(message_of<ConfigError>([&] { Optimizer({{"twin", parameter}}, SgdOptions{}); }),
              HasSubstr("parameter twin is a lazy conjugate or negative"));
  const auto negative = at::_neg_view(torch::ones({4}));
  EXPECT_THAT(
      message_of<ConfigError>([&] { Optimizer({{"minus", negative}}, SgdOptions{}); }),
      HasSubstr("parameter minus is a lazy conjugate or negative view; register a clone()"));
}

// --- Clipping and scaling ------------------------------------------------------------------------

struct Gradients {
  Tensors parameters;
  Tensors values;  // plain copies of the gradients
};

Gradients unusual_gradients() {
  Gradients made{.parameters = make_parameters(), .values = {}};
  for (std::size_t i = 0; i < made.parameters.size(); ++i) {
    const torch::Tensor& parameter = made.parameters[i];
    made.values.push_back(
        numbers(parameter.sizes(), parameter.scalar_type(), 20 + static_cast<double>(i)));
    parameter.mutable_grad() = i == 0 ? made.values[i].clone() : lazy(made.values[i]);
  }
  return made;
}

TEST(ClipUnusualGradients, ByTheNormOfTheirMagnitudes) {
  for (const double norm_type : {2.0, 1.0, std::numeric_limits<double>::infinity()}) {
    const auto [parameters, values] = unusual_gradients();
    Tensors magnitudes;
    for (const auto& value : values)
      magnitudes.push_back(value.abs().to(torch::kFloat64).flatten());
    const double expected =
        torch::linalg_vector_norm(torch::cat(magnitudes), norm_type).item<double>();
    const double norm = clip_grad_norm_(parameters, 0.5, norm_type).item<double>();
    EXPECT_NEAR(norm, expected, 1e-5 * expected) << norm_type;
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_TRUE(torch::allclose(parameters[i].grad(), values[i] * (0.5 / expected), 1e-4, 1e-6))
          << "norm " << norm_type << ", gradient " << i;
    }
  }
}

TEST(ClipUnusualGradients, TakesOneWithoutElements) {
  for (const double norm_type : {2.0, std::numeric_limits<double>::infinity()}) {
    const Tensors gradients = {torch::empty({0, 3}), torch::tensor({3.0, -4.0})};
    EXPECT_EQ(get_total_norm(gradients, norm_type).item<double>(), norm_type == 2 ? 5 : 4);
    EXPECT_EQ(get_total_norm({gradients[0]}, norm_type).item<double>(), 0);
  }
}

TEST(ClipUnusualGradients, ByValueIfTheyAreReal) {
  const auto real = torch::zeros({4}, torch::requires_grad());
  const auto values = torch::tensor({-3.0F, -0.5F, 0.25F, 2.0F});
  real.mutable_grad() = lazy(values);
  clip_grad_value_({real}, 1);
  EXPECT_TRUE(real.grad().equal(values.clamp(-1, 1)));

  const auto complex =
      torch::zeros({1}, torch::TensorOptions(torch::kComplexFloat).requires_grad(true));
  complex.mutable_grad() = torch::full_like(complex, c10::complex<float>(3, 4)).detach();
  real.mutable_grad() = values.clone();
  EXPECT_THAT(message_of<ConfigError>([&] { clip_grad_value_({real, complex}, 1); }),
              HasSubstr("clip_grad_value_: a gradient is complex"));
  EXPECT_TRUE(real.grad().equal(values));
}

TEST(ClipGradNorm, RefusesALimitThatIsNone) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  const auto parameter = torch::zeros({2}, torch::requires_grad());
  const auto values = torch::tensor({3.0F, 4.0F});
  for (const double wrong : {std::nan(""), -1.0, -kInfinite}) {
    parameter.mutable_grad() = values.clone();
    EXPECT_THAT(message_of<ConfigError>([&] { clip_grad_norm_({parameter}, wrong); }),
                HasSubstr("clip_grad_norm_: max_norm must be at least 0, got "));
    EXPECT_THAT(message_of<ConfigError>([&] { clip_grads_with_norm_({}, wrong, torch::ones({})); }),
                HasSubstr("max_norm"));
    EXPECT_TRUE(parameter.grad().equal(values)) << wrong;
  }
  EXPECT_THAT(message_of<ConfigError>([&] { clip_grad_norm_({parameter}, 1, std::nan("")); }),
              HasSubstr("norm_type is not a number"));
  clip_grad_norm_({parameter}, kInfinite);
  EXPECT_TRUE(parameter.grad().equal(values));
  clip_grad_norm_({parameter}, 0);
  EXPECT_EQ(parameter.grad().abs().sum().item<float>(), 0);
}

TEST(GradScalerOfComplex, DividesAndLooksAtBothParts) {
  GradScaler scaler({.init_scale = 4});
  const auto [parameters, values] = unusual_gradients();
  Tensors gradients;
  for (const auto& parameter : parameters) gradients.push_back(parameter.grad());
  int steps = 0;
  EXPECT_TRUE(scaler.step(gradients, [&] { ++steps; }));
  scaler.update();
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_TRUE(torch::allclose(gradients[i], values[i] / 4)) << i;
  }
  const float infinite = std::numeric_limits<float>::infinity();
  at::view_as_real(gradients[0])[1][1][1] = infinite;  // an imaginary part
  EXPECT_FALSE(scaler.step(gradients, [&] { ++steps; }));
  EXPECT_EQ(steps, 1);
}

// --- Versions ------------------------------------------------------------------------------------

// Whether a backward() through a value of `tensor` that was saved before `write` is refused.
bool notices(const torch::Tensor& tensor, const std::function<void()>& write) {
  auto factor = torch::ones_like(tensor.detach()).requires_grad_();
  const auto product = (factor * tensor.detach()).abs().sum();
  write();
  try {
    product.backward();
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("modified by an inplace operation"));
    return true;
  }
  return false;
}

TEST(OptimizerVersions, RiseForEveryParameterThatIsStepped) {
  for (const OptimizerOptions& options : kOptions) {
    for (const bool on_device : {false, true}) {
      for (const bool flat : {false, true}) {
        testing_support::FlatMemory memory({{16}, {16}, {5}});
        Tensors tensors = memory.bound();
        if (!flat) tensors = make_parameters();
        tensors.push_back(torch::ones({3}, torch::requires_grad()));  // has no gradient
        for (std::size_t i = 0; i + 1 < tensors.size(); ++i) {
          if (!flat) tensors[i].mutable_grad() = torch::ones_like(tensors[i]).detach();
        }
        Optimizer optimizer(named(tensors), options);
        if (on_device) optimizer.set_capturable(true);
        for (int step = 0; step < 4; ++step) {  // singly first, then in runs
          std::vector<std::int64_t> before;
          for (const auto& tensor : tensors) before.push_back(tensor._version());
          optimizer.step();
          for (std::size_t i = 0; i < tensors.size(); ++i) {
            EXPECT_EQ(tensors[i]._version() > before[i], i + 1 < tensors.size())
                << "tensor " << i << ", step " << step << (flat ? ", flat" : "");
          }
        }
      }
    }
  }
  const auto parameter = torch::ones({3}, torch::requires_grad());
  parameter.mutable_grad() = torch::ones({3});
  Optimizer optimizer({{"p", parameter}}, AdamOptions{});
  EXPECT_TRUE(notices(parameter, [&] { optimizer.step(); }));
}

TEST(OptimizerVersions, OfGradientsRiseWithScalingAndClipping) {
  const auto parameter = torch::zeros({4}, torch::requires_grad());
  parameter.mutable_grad() = torch::ones({4});
  GradScaler scaler({.init_scale = 2});
  EXPECT_TRUE(notices(parameter.grad(), [&] { scaler.unscale_({parameter.grad()}); }));
  EXPECT_TRUE(notices(parameter.grad(), [&] { clip_grad_norm_({parameter}, 0.1); }));
  EXPECT_TRUE(notices(parameter.grad(), [&] { clip_grad_value_({parameter}, 0.01); }));
}

// --- Clipping by value ---------------------------------------------------------------------------

TEST(ClipGradValue, TakesMissingGradientsAndSeveralTypes) {
  const auto without = torch::zeros({2}, torch::requires_grad());
  Tensors parameters = {without}, expected;
  for (const auto type : {torch::kFloat64, torch::kBFloat16, torch::kFloat32}) {
    parameters.push_back(torch::zeros({3}, torch::dtype(type).requires_grad(true)));
    const auto values = torch::tensor({-3.0, -0.125, 2.0}).to(type);
    parameters.back().mutable_grad() = values.clone();
    expected.push_back(values.clamp(-0.25, 0.25));
  }
  clip_grad_value_(parameters, 0.25);
  EXPECT_FALSE(without.grad().defined());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(parameters[i + 1].grad().equal(expected[i])) << expected[i].scalar_type();
  }
}

TEST(ClipGradValue, RefusesBeforeItClips) {
  const auto values = torch::tensor({3.0F, -4.0F});
  const auto dense = torch::zeros({2}, torch::requires_grad());
  dense.mutable_grad() = values.clone();
  torch::nn::Embedding embedding(torch::nn::EmbeddingOptions(4, 1).sparse(true));
  embedding->forward(torch::tensor({2})).sum().backward();
  EXPECT_THAT(
      message_of<ConfigError>([&] { clip_grad_value_({dense, embedding->weight}, 1); }),
      HasSubstr("clip_grad_value_: a gradient is sparse, which cannot be clipped by value"));
  for (const double wrong : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_THAT(message_of<ConfigError>([&] { clip_grad_value_({dense}, wrong); }),
                HasSubstr("clip_grad_value_: clip_value must be greater than 0, got "));
  }
  EXPECT_TRUE(dense.grad().equal(values));
}

}  // namespace
}  // namespace lockstep
