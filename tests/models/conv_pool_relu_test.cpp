#include <lockstep/models/conv_pool_relu.h>

#include <cmath>
#include <limits>

#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <lockstep/core/error.h>
#include <lockstep/models/mnist_net.h>
#include <tests/support/messages.h>
#include <tests/support/processor_time.h>

namespace lockstep::models {
namespace {

torch::Tensor composed(const torch::Tensor& x, const torch::Tensor& w, const torch::Tensor& b) {
  return at::relu(at::max_pool2d(at::conv2d(x, w, b), 2));
}

struct Case {
  std::int64_t images, channels_in, height, width, channels_out, kernel;
  bool fused;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.images << "x" << c.channels_in << "x" << c.height << "x" << c.width << " to "
             << c.channels_out << " by " << c.kernel;
}

struct Leaves {
  torch::Tensor x, w, b;
};

// Values that are small integers: sums are exact in any order, and windows have many ties.
Leaves random_leaves(const Case& c, torch::ScalarType dtype = torch::kFloat32, bool whole = false) {
  const auto make = [&](at::IntArrayRef shape) {
    auto values = whole ? torch::randint(-2, 3, shape).to(dtype) : torch::randn(shape, dtype);
    return values.requires_grad_();
  };
  return {make({c.images, c.channels_in, c.height, c.width}),
          make({c.channels_out, c.channels_in, c.kernel, c.kernel}), make({c.channels_out})};
}

class ConvPoolRelu : public ::testing::TestWithParam<Case> {
 protected:
  void compare(bool whole) {
    if (GetParam().fused && !__builtin_cpu_supports("avx2")) GTEST_SKIP() << "no AVX2 here";
    torch::manual_seed(3);
    const Leaves in = random_leaves(GetParam(), torch::kFloat32, whole);
    if (!whole) {
      // On a grid, the sums of the convolution are exact in any order, so no kernel's rounding
      // decides which output of a window is its maximum and gets the gradient.
      const torch::NoGradGuard no_grad;
      for (const torch::Tensor& leaf : {in.x, in.w, in.b}) leaf.mul_(64).round_().div_(64);
    }
    ASSERT_EQ(conv_pool_relu_is_fused(in.x, in.w, in.b), GetParam().fused);
    const auto ours = conv_pool_relu(in.x, in.w, in.b);
    const auto theirs = composed(in.x, in.w, in.b);
    const double tolerance = whole ? 0 : 1e-5;
    // An output near zero has the absolute error of the others, because its terms are as large.
    const double largest = theirs.abs().max().item<double>();
    EXPECT_TRUE(torch::allclose(ours, theirs, tolerance, tolerance * largest))
        << "outputs differ by " << (ours - theirs).abs().max().item<double>();
    auto gradient = torch::randn_like(theirs);
    if (whole) gradient = gradient.round();
    const auto our_gradients = torch::autograd::grad({ours}, {in.x, in.w, in.b}, {gradient});
    const auto their_gradients = torch::autograd::grad({theirs}, {in.x, in.w, in.b}, {gradient});
    for (int i = 0; i < 3; ++i) {
      const double scale = whole ? 0 : 1e-5 * their_gradients[i].abs().max().item<double>();
      EXPECT_TRUE(torch::allclose(our_gradients[i], their_gradients[i], tolerance, scale))
          << "gradient " << i << " differs by "
          << (our_gradients[i] - their_gradients[i]).abs().max().item<double>();
    }
  }
};

TEST_P(ConvPoolRelu, EqualsLibTorchsOperations) { compare(false); }
TEST_P(ConvPoolRelu, TakesTheFirstOfEqualMaxima) { compare(true); }

INSTANTIATE_TEST_SUITE_P(
    Shapes, ConvPoolRelu,
    ::testing::Values(Case{64, 1, 28, 28, 10, 5, true}, Case{64, 10, 12, 12, 20, 5, true},
                      Case{17, 3, 10, 18, 7, 3, true}, Case{1, 8, 6, 12, 1, 5, true},
                      Case{33, 9, 12, 20, 5, 5, true},
                      Case{5, 2, 13, 12, 4, 5, false},    // one row would be left over
                      Case{5, 2, 12, 13, 4, 5, false},    // nine columns do not fill vectors
                      Case{5, 2, 13, 13, 4, 2, false}));  // another kernel size

// What the kernel does not read, it leaves to LibTorch's operations.
TEST(ConvPoolReluUnusual, TensorsAreLeftToLibTorch) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(4);
  const auto x = torch::randn({2, 2, 6, 12});
  const auto w = torch::randn({3, 2, 5, 5});
  const auto b = torch::randn({3});
  EXPECT_EQ(conv_pool_relu_is_fused(x, w, b), __builtin_cpu_supports("avx2") != 0);
  const std::pair<const char*, Leaves> cases[] = {
      {"every second column", {torch::randn({2, 2, 6, 24}).slice(3, 0, 24, 2), w, b}},
      {"images by channels last", {x.contiguous(at::MemoryFormat::ChannelsLast), w, b}},
      {"transposed filters", {x, w.transpose(2, 3), b}},
      {"every second bias", {x, w, torch::randn({6}).slice(0, 0, 6, 2)}},
      {"double", {x.to(torch::kDouble), w.to(torch::kDouble), b.to(torch::kDouble)}},
      {"filters that are not square", {x, w.narrow(3, 0, 3).contiguous(), b}},
      {"filters that are not square, either", {x, w.narrow(2, 0, 3).contiguous(), b}},
      {"an image without a batch", {x[0], w, b}},
      {"lazily negated images", {at::_neg_view(x), w, b}},
      {"lazily negated filters", {x, at::_neg_view(w), b}},
      {"lazily negated biases", {x, w, at::_neg_view(b)}}};
  for (const auto& [what, in] : cases) {
    EXPECT_FALSE(conv_pool_relu_is_fused(in.x, in.w, in.b)) << what;
    EXPECT_TRUE(conv_pool_relu(in.x, in.w, in.b).equal(composed(in.x, in.w, in.b))) << what;
  }
  const bool before = at::autocast::is_autocast_enabled(at::kCPU);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  EXPECT_FALSE(conv_pool_relu_is_fused(x, w, b)) << "in 16 bits";
  at::autocast::set_autocast_enabled(at::kCPU, before);
  // Filters for other channels, and too few biases, are LibTorch's errors.
  EXPECT_THROW(conv_pool_relu(x, torch::randn({3, 3, 5, 5}), b), c10::Error);
  EXPECT_THROW(conv_pool_relu(x, w, torch::randn({2})), c10::Error);
  // So are images with fewer rows, or fewer columns, than the filters.
  EXPECT_THROW(conv_pool_relu(torch::randn({2, 2, 4, 12}), w, b), c10::Error);
  EXPECT_THROW(conv_pool_relu(torch::randn({2, 2, 6, 4}), w, b), c10::Error);
}

TEST(ConvPoolReluUnusual, ABatchMayBeEmpty) {
  const Leaves in = random_leaves({0, 2, 6, 12, 3, 5, true});
  const auto y = conv_pool_relu(in.x, in.w, in.b);
  EXPECT_EQ(y.sizes(), (std::vector<std::int64_t>{0, 3, 1, 4}));
  const auto gradients = torch::autograd::grad({y.sum()}, {in.x, in.w, in.b});
  EXPECT_EQ(gradients[0].sizes(), in.x.sizes());
  EXPECT_TRUE(gradients[1].equal(torch::zeros_like(in.w)));
  EXPECT_TRUE(gradients[2].equal(torch::zeros_like(in.b)));
}

// The kernel reads the gradient's memory, which is that of other numbers or has another order here.
TEST(ConvPoolReluGradient, MayBeLazyExpandedOrTransposed) {
  if (!__builtin_cpu_supports("avx2")) GTEST_SKIP() << "no AVX2 here";
  torch::manual_seed(2);
  const Leaves in = random_leaves({3, 2, 6, 12, 3, 5, true});
  const auto y = conv_pool_relu(in.x, in.w, in.b);
  const auto numbers = torch::randn(y.sizes());
  const std::pair<const char*, torch::Tensor> cases[] = {
      {"lazily negated", at::_neg_view(numbers)},
      {"one number for all", torch::full({1, 1, 1, 1}, 0.5F).expand(y.sizes())},
      {"channels last", numbers.contiguous(at::MemoryFormat::ChannelsLast)},
      {"every second number", torch::stack({numbers, numbers + 1}, -1).select(-1, 1)}};
  for (const auto& [what, gradient] : cases) {
    const auto plain = torch::zeros(y.sizes()).add_(gradient);
    const auto got = torch::autograd::grad({y}, {in.x, in.w, in.b}, {gradient},
                                           /*retain_graph=*/true);
    const auto expected =
        torch::autograd::grad({y}, {in.x, in.w, in.b}, {plain}, /*retain_graph=*/true);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(got[i].equal(expected[i])) << what << ' ' << i;
  }
}

TEST(ConvPoolReluGradient, IsThatOfFiniteDifferences) {
  if (!__builtin_cpu_supports("avx2")) GTEST_SKIP() << "no AVX2 here";
  torch::manual_seed(1);
  // Compares slopes of the fused float32 kernel in random directions with those in double
  // precision.
  const Case c{2, 2, 6, 12, 3, 5, true};
  const Leaves in = random_leaves(c);
  const Leaves wide = {in.x.detach().to(torch::kFloat64), in.w.detach().to(torch::kFloat64),
                       in.b.detach().to(torch::kFloat64)};
  const auto y = conv_pool_relu(in.x, in.w, in.b);
  const auto gradients = torch::autograd::grad({y.sum()}, {in.x, in.w, in.b});
  const double epsilon = 1e-7;
  const auto slope = [&](const torch::Tensor& dx, const torch::Tensor& dw,
                         const torch::Tensor& db) {
    const auto up = composed(wide.x + epsilon * dx, wide.w + epsilon * dw, wide.b + epsilon * db);
    const auto down = composed(wide.x - epsilon * dx, wide.w - epsilon * dw, wide.b - epsilon * db);
    return (up - down).sum().item<double>() / (2 * epsilon);
  };
  const auto dx = torch::randn_like(wide.x);
  const auto dw = torch::randn_like(wide.w);
  const auto db = torch::randn_like(wide.b);
  const auto zero = [](const torch::Tensor& t) { return torch::zeros_like(t); };
  EXPECT_NEAR((gradients[0] * dx).sum().item<double>(), slope(dx, zero(dw), zero(db)), 1e-3);
  EXPECT_NEAR((gradients[1] * dw).sum().item<double>(), slope(zero(dx), dw, zero(db)), 1e-3);
  EXPECT_NEAR((gradients[2] * db).sum().item<double>(), slope(zero(dx), zero(dw), db), 1e-3);
}

TEST(ConvPoolReluSpecialValues, NanReachesTheOutput) {
  auto x = torch::zeros({1, 1, 28, 28});
  x[0][0][10][10] = std::numeric_limits<float>::quiet_NaN();
  const auto w = torch::ones({1, 1, 5, 5});
  const auto b = torch::ones({1});
  const auto ours = conv_pool_relu(x, w, b);
  EXPECT_TRUE(ours.isnan().equal(composed(x, w, b).isnan()));
  EXPECT_GT(ours.isnan().sum().item<int>(), 0);
}

TEST(ConvPoolReluThreads, DoNotChangeTheBits) {
  torch::manual_seed(5);
  const Leaves in = random_leaves({100, 10, 12, 12, 20, 5, true});
  const int before = at::get_num_threads();
  std::vector<std::vector<torch::Tensor>> results;
  for (const int threads : {1, 2}) {
    at::set_num_threads(threads);
    const auto y = conv_pool_relu(in.x, in.w, in.b);
    results.push_back(torch::autograd::grad({y.square().sum()}, {in.x, in.w, in.b}));
  }
  at::set_num_threads(before);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(results[0][i].equal(results[1][i])) << "gradient " << i;
}

TEST(ConvPoolReluThreads, ShareTheWork) {
  if (!__builtin_cpu_supports("avx2")) GTEST_SKIP() << "no AVX2 here";
  const torch::NoGradGuard no_grad;
  const Leaves in = random_leaves({256, 10, 12, 12, 20, 5, true});
  const double share = testing_support::own_share(2, [&] {
    for (int i = 0; i < 50; ++i) conv_pool_relu(in.x, in.w, in.b);
  });
  EXPECT_LT(share, 0.8);
}

TEST(ConvPoolReluSecondDerivative, IsRefusedByName) {
  if (!__builtin_cpu_supports("avx2")) GTEST_SKIP() << "no AVX2 here";
  const Leaves in = random_leaves({1, 1, 28, 28, 2, 5, true});
  const auto y = conv_pool_relu(in.x, in.w, in.b).sum();
  EXPECT_EQ(testing_support::message_of<ConfigError>(
                [&] { torch::autograd::grad({y}, {in.w}, {}, true, /*create_graph=*/true); }),
            "conv_pool_relu: has no second derivative; call backward() without create_graph");
}

// The forward pass as the authors of the example wrote it, over the same parameters.
torch::Tensor classic_forward(MnistNetImpl& net, const torch::Tensor& images) {
  auto p = net.named_parameters();
  const bool training = net.is_training();
  auto x = at::relu(at::max_pool2d(at::conv2d(images, p["conv1.weight"], p["conv1.bias"]), 2));
  x = at::feature_dropout(at::conv2d(x, p["conv2.weight"], p["conv2.bias"]), 0.5, training);
  x = at::relu(at::max_pool2d(x, 2)).reshape({-1, 320});
  x = at::dropout(at::relu(at::linear(x, p["fc1.weight"], p["fc1.bias"])), 0.5, training);
  return at::log_softmax(at::linear(x, p["fc2.weight"], p["fc2.bias"]), 1);
}

TEST(MnistNet, EqualsTheClassicExampleWithTheSameRandomNumbers) {
  for (const auto& [fused, training] :
       {std::pair{true, true}, {true, false}, {false, true}, {false, false}}) {
    torch::manual_seed(7);
    MnistNet net(MnistNetOptions{.fused_kernels = fused});
    net->train(training);
    const auto images = torch::randn({32, 1, 28, 28});
    const auto labels = torch::randint(10, {32}, torch::kLong);
    std::vector<torch::Tensor> losses;
    std::vector<std::vector<torch::Tensor>> gradients;
    for (const bool classic : {false, true}) {
      torch::manual_seed(11);
      const auto output = classic ? classic_forward(*net, images) : net->forward(images);
      losses.push_back(at::nll_loss(output, labels));
      gradients.push_back(torch::autograd::grad({losses.back()}, net->parameters()));
    }
    EXPECT_NEAR(losses[0].item<double>(), losses[1].item<double>(), 1e-5) << training;
    // The fused kernel adds in another order. LibTorch's own operations give the same bits.
    if (!fused) {
      EXPECT_TRUE(losses[0].equal(losses[1])) << training;
    }
    for (std::size_t i = 0; i < gradients[0].size(); ++i) {
      const double scale = 1e-5 * gradients[1][i].abs().max().item<double>();
      EXPECT_TRUE(torch::allclose(gradients[0][i], gradients[1][i], 1e-5, scale))
          << "training " << training << ", gradient " << i;
    }
  }
}

TEST(MnistNet, WithoutDropoutIsTheSameInTrainingAndEvaluation) {
  MnistNet net(MnistNetOptions{.dropout = false});
  const auto images = torch::randn({4, 1, 28, 28});
  net->train();
  const auto training = net->forward(images);
  net->eval();
  EXPECT_TRUE(training.equal(net->forward(images)));
}

// Sums of many exponentials would be imprecise in 16 bits.
TEST(MnistNet, GivesFloat32InAnyPrecision) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(6);
  MnistNet net(MnistNetOptions{.dropout = false});
  const auto images = torch::randn({4, 1, 28, 28});
  const auto exact = net->forward(images);
  net->to(torch::kBFloat16);
  const auto rounded = net->forward(images.to(torch::kBFloat16));
  EXPECT_EQ(rounded.scalar_type(), torch::kFloat32);
  EXPECT_TRUE(rounded.allclose(exact, 0, 0.1)) << (rounded - exact).abs().max();
  EXPECT_TRUE(rounded.exp().sum(1).allclose(torch::ones({4}), 1e-5, 1e-5));
}

TEST(MnistNet, IsCloned) {
  MnistNet net(MnistNetOptions{.dropout = false});
  const auto copy = std::dynamic_pointer_cast<MnistNetImpl>(net->clone());
  ASSERT_NE(copy, nullptr);
  const auto images = torch::randn({4, 1, 28, 28});
  EXPECT_TRUE(copy->forward(images).equal(net->forward(images)));
}

}  // namespace
}  // namespace lockstep::models
