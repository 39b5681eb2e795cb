// Normalisation over batch statistics, channels, groups and layers.
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/normalization.h>

#include <tests/export/operators/case_list.h>

namespace lockstep::testing_support {
namespace {

namespace nn = torch::nn;
using torch::Tensor;

template <class Norm>
Norm with_statistics(Norm norm) {
  norm->running_mean.normal_();
  norm->running_var.uniform_(0.5, 2);
  torch::NoGradGuard no_grad;
  norm->weight.uniform_(0.5, 2);
  norm->bias.normal_();
  return norm;
}

// The defaults, ones and zeros, would hide what a lowering does with them.
template <class Norm>
Norm with_affine(Norm norm) {
  torch::NoGradGuard no_grad;
  norm->weight.uniform_(0.5, 2);
  norm->bias.normal_();
  return norm;
}

}  // namespace

void add_normalization_cases(CaseList& cases) {
  cases.add_net("batch_norm", with_statistics(nn::BatchNorm1d(4)), floats({4}));
  cases.add_net("batch_norm", with_statistics(nn::BatchNorm2d(3)), floats({3, 4, 5}));
  cases.add_net("batch_norm",
                nn::Sequential(nn::Conv2d(nn::Conv2dOptions(2, 3, 3).bias(false)),
                               with_statistics(nn::BatchNorm2d(3)), nn::ReLU()),
                floats({2, 5, 5}));
  cases.add_net("batch_norm",
                nn::Sequential(nn::ConvTranspose2d(nn::ConvTranspose2dOptions(2, 3, 3)),
                               with_statistics(nn::BatchNorm2d(3))),
                floats({2, 5, 5}));
  // A scale that is computed from the input cannot be folded into the convolution's weights.
  const Tensor filter = torch::randn({3, 2, 3, 3});
  cases.add("batch_norm",
            [filter](const Tensor& x) {
              const Tensor gamma =
                  x.slice(0, 0, 1).mean(at::IntArrayRef{0, 2, 3}).repeat({2}).slice(0, 1);
              return at::batch_norm(at::conv2d(x, filter), gamma, gamma, torch::zeros({3}),
                                    torch::ones({3}), false, 0.1, 1e-5, false);
            },
            {floats({2, 5, 5})});
  cases.add_net("instance_norm", nn::InstanceNorm2d(nn::InstanceNorm2dOptions(3).affine(true)),
                floats({3, 4, 5}));
  cases.add_net("layer_norm", nn::LayerNorm(nn::LayerNormOptions({4, 5})), floats({3, 4, 5}));
  cases.add("layer_norm", [](const Tensor& x) { return at::layer_norm(x, {4}); });
  cases.add_net("group_norm", nn::GroupNorm(nn::GroupNormOptions(2, 6)), floats({6, 4, 5}));
  cases.add("rms_norm", [](const Tensor& x) { return at::rms_norm(x, {4}); });
  // With large epsilons, which change the results.
  cases.add_net("batch_norm", with_statistics(nn::BatchNorm1d(nn::BatchNormOptions(4).eps(0.5))),
                floats({4}));
  cases.add_net("instance_norm",
                with_affine(nn::InstanceNorm2d(nn::InstanceNorm2dOptions(3).affine(true).eps(0.5))),
                floats({3, 4, 5}));
  cases.add_net("layer_norm", with_affine(nn::LayerNorm(nn::LayerNormOptions({4, 5}).eps(0.5))),
                floats({3, 4, 5}));
  cases.add_net("group_norm", with_affine(nn::GroupNorm(nn::GroupNormOptions(2, 6).eps(0.5))),
                floats({6, 4, 5}));
  cases.add_net("group_norm", with_affine(nn::GroupNorm(nn::GroupNormOptions(2, 6))), floats({6}));
  cases.add_net("group_norm", with_affine(nn::GroupNorm(nn::GroupNormOptions(2, 6))),
                floats({6, 5}));
  cases.add("rms_norm", [](const Tensor& x) {
    const Tensor weight = torch::arange(12, torch::kFloat).view({3, 4}) / 10;
    return at::rms_norm(x, {3, 4}, weight.to(x.scalar_type()), 0.5);
  });
  // Convolutions with groups: only a transposed one keeps its weights.
  cases.add_net("batch_norm",
                nn::Sequential(nn::ConvTranspose2d(nn::ConvTranspose2dOptions(4, 6, 3).groups(2)),
                               with_statistics(nn::BatchNorm2d(6))),
                floats({4, 5, 5}));
  nn::BatchNorm2d plain(nn::BatchNormOptions(4).affine(false));
  plain->running_mean.normal_();
  plain->running_var.uniform_(0.5, 2);
  cases.add_net("batch_norm",
                nn::Sequential(nn::Conv2d(nn::Conv2dOptions(2, 4, 3).groups(2)), plain),
                floats({2, 5, 5}));
  // Given statistics, with a bias alone or with neither weight nor bias.
  const Tensor mean = torch::tensor({0.5F, -1.0F, 2.0F});
  const Tensor variance = torch::tensor({0.5F, 1.5F, 3.0F});
  cases.add("batch_norm", [=](const Tensor& x) {
    return at::batch_norm(x, {}, mean, mean, variance, false, 0.1, 0.5, false);
  });
  nn::InstanceNorm2d tracking(nn::InstanceNorm2dOptions(3).track_running_stats(true).eps(0.5));
  tracking->running_mean.copy_(mean);
  tracking->running_var.copy_(variance);
  cases.add_net("instance_norm", tracking, floats({3, 4, 5}));
}

}  // namespace lockstep::testing_support
