// LibTorch's kernels for synchronised batch normalisation, written as tensor arithmetic, for
// devices without such kernels. As on CUDA, statistics are combined in the dtype of the inputs.
#pragma once

#include <optional>
#include <tuple>

#include <torch/library.h>
#include <torch/types.h>

namespace lockstep::testing_support {

using OptionalTensor = std::optional<at::Tensor>;

inline std::vector<std::int64_t> all_but_channels_of(const at::Tensor& input) {
  std::vector<std::int64_t> dimensions{0};
  for (std::int64_t i = 2; i < input.dim(); ++i) dimensions.push_back(i);
  return dimensions;
}

inline at::Tensor beside_channels(const at::Tensor& values, const at::Tensor& input) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(input.dim()), 1);
  shape[1] = values.size(0);
  return values.view(shape);
}

inline at::ScalarType accumulating_type(const at::Tensor& input) {
  return input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

inline std::tuple<at::Tensor, at::Tensor> batch_norm_stats(const at::Tensor& input, double eps) {
  const auto [variance, mean] = at::var_mean(input.to(accumulating_type(input)),
                                             all_but_channels_of(input), /*unbiased=*/false);
  return {mean, (variance + eps).rsqrt()};
}

// The running combination of batch_norm_reduce_statistics_kernel: each step divides by the count so
// far.
inline std::tuple<at::Tensor, at::Tensor> batch_norm_gather_stats_with_counts(
    const at::Tensor&, const at::Tensor& means, const at::Tensor& inverses,
    const OptionalTensor& running_mean, const OptionalTensor& running_var, double momentum,
    double eps, const at::Tensor& counts) {
  at::Tensor mean = at::zeros_like(means[0]), squares = at::zeros_like(mean);
  at::Tensor seen = at::zeros_like(counts[0]);
  for (std::int64_t rank = 0; rank < means.size(0); ++rank) {
    const at::Tensor count = counts[rank], spread = inverses[rank].reciprocal().square() - eps;
    const at::Tensor factor = (seen + count).reciprocal();
    squares += spread * count + (mean - means[rank]).square() * seen * count * factor;
    mean = seen * factor * mean + count * factor * means[rank];
    seen = seen + count;
  }
  if (running_mean) running_mean->mul_(1 - momentum).add_(mean, momentum);
  if (running_var) running_var->mul_(1 - momentum).add_(squares / (seen - 1), momentum);
  return {mean, (squares / seen + eps).rsqrt()};
}

inline at::Tensor batch_norm_elemt(const at::Tensor& input, const OptionalTensor& weight,
                                   const OptionalTensor& bias, const at::Tensor& mean,
                                   const at::Tensor& inverse, double) {
  at::Tensor output = (input.to(accumulating_type(input)) - beside_channels(mean, input)) *
                      beside_channels(inverse, input);
  if (weight) output = output * beside_channels(*weight, input);
  if (bias) output = output + beside_channels(*bias, input);
  return output.to(input.scalar_type());
}

inline std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> batch_norm_backward_reduce(
    const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& mean,
    const at::Tensor& inverse, const OptionalTensor& weight, bool, bool, bool) {
  const auto type = accumulating_type(input);
  const auto dimensions = all_but_channels_of(input);
  const at::Tensor dy = gradient.to(type);
  const at::Tensor sum = dy.sum(dimensions);
  const at::Tensor sum_of_products =
      (dy * (input.to(type) - beside_channels(mean, input))).sum(dimensions);
  const auto given_type = weight ? weight->scalar_type() : type;
  return {sum, sum_of_products, (sum_of_products * inverse).to(given_type), sum.to(given_type)};
}

inline at::Tensor batch_norm_backward_elemt(const at::Tensor& gradient, const at::Tensor& input,
                                            const at::Tensor& mean, const at::Tensor& inverse,
                                            const OptionalTensor& weight, const at::Tensor& sum_dy,
                                            const at::Tensor& sum_dy_xmu,
                                            const at::Tensor& counts) {
  TORCH_CHECK(counts.scalar_type() == at::kInt, "the kernel reads counts as int32");
  const auto type = accumulating_type(input);
  const at::Tensor all = counts.sum();
  const at::Tensor centered = input.to(type) - beside_channels(mean, input);
  at::Tensor factor = inverse;
  if (weight) factor = factor * *weight;
  const at::Tensor of_variance = inverse.square() * sum_dy_xmu / all;
  const at::Tensor dx = (gradient.to(type) - beside_channels(sum_dy / all, input) -
                         centered * beside_channels(of_variance, input)) *
                        beside_channels(factor, input);
  return dx.to(input.scalar_type());
}

/// Call it inside TORCH_LIBRARY_IMPL(aten, ...) for the device.
inline void add_batch_norm_kernels(torch::Library& library) {
  library.impl("batch_norm_stats", &batch_norm_stats);
  library.impl("batch_norm_gather_stats_with_counts", &batch_norm_gather_stats_with_counts);
  library.impl("batch_norm_elemt", &batch_norm_elemt);
  library.impl("batch_norm_backward_reduce", &batch_norm_backward_reduce);
  library.impl("batch_norm_backward_elemt", &batch_norm_backward_elemt);
}

}  // namespace lockstep::testing_support
