#include <lockstep/parallel/sync_batch_norm_kernels.h>

#include <optional>

#include <ATen/ops/batch_norm_backward_elemt.h>
#include <ATen/ops/batch_norm_backward_reduce.h>
#include <ATen/ops/batch_norm_elemt.h>
#include <ATen/ops/batch_norm_gather_stats_with_counts.h>
#include <ATen/ops/batch_norm_stats.h>

#include <lockstep/core/error.h>

namespace lockstep::sync_batch_norm_kernels {
namespace {

using torch::Tensor;

// The kernel that combines the ranks' statistics divides by the number of values seen so far. An
// empty rank therefore reports this count: too small to change a mean or variance in float32, but
// not zero. Only the device knows which ranks are empty.
constexpr double kEmptyCount = 1e-20;

std::optional<Tensor> given(const Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

torch::ScalarType type_of_statistics(const Tensor& input) {
  return input.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
}

// A rank's message to the others: mean, 1 / sqrt(variance + eps) and the number of values.
Tensor message_of(const Tensor& input, double eps) {
  const std::int64_t channels = input.size(1);
  const auto options = input.options().dtype(type_of_statistics(input));
  const Tensor message = torch::zeros({2 * channels + 1}, options);
  const Tensor inverse = message.narrow(0, channels, channels);
  if (input.numel() == 0) {
    inverse.fill_(eps).rsqrt_();
    message.narrow(0, 2 * channels, 1).fill_(kEmptyCount);
    return message;
  }
  const auto [mean, own_inverse] = at::batch_norm_stats(input, eps);
  message.narrow(0, 0, channels).copy_(mean);
  inverse.copy_(own_inverse);
  message.narrow(0, 2 * channels, 1).fill_(static_cast<double>(input.numel() / channels));
  return message;
}

void require_several(const Tensor& input, const Tensor& counts) {
  if (input.numel() > input.size(1)) return;
  const auto all = counts.to(torch::kInt64).sum().item<std::int64_t>();
  if (all > 1) return;
  throw ConfigError(lockstep::str(
      "batch normalisation in training needs more than one value for each channel, the ranks "
      "together have ",
      all, " in an input of ", input.sizes()));
}

}  // namespace

Tensor laid_out(const Tensor& tensor) { return tensor.contiguous(tensor.suggest_memory_format()); }

Statistics gather(const Tensor& input, const Tensor& running_mean, const Tensor& running_var,
                  double momentum, double eps, ProcessGroup& group) {
  const std::int64_t channels = input.size(1);
  const Tensor own = message_of(input, eps);
  const Tensor all = torch::empty({group.size(), 2 * channels + 1}, own.options());
  group.all_gather_into_tensor(all, own);
  const Tensor counts = all.select(1, 2 * channels);
  require_several(input, counts);
  // The kernel takes counts in the running statistics' type, and 16 bits would not hold them.
  const auto wide = [&](const Tensor& running) {
    return running.defined() ? running.detach().to(own.scalar_type()) : running;
  };
  const Tensor wide_mean = wide(running_mean), wide_var = wide(running_var);
  auto [mean, inverse] = at::batch_norm_gather_stats_with_counts(
      own, all.narrow(1, 0, channels), all.narrow(1, channels, channels), given(wide_mean),
      given(wide_var), momentum, eps, counts);
  const auto take = [](const Tensor& running, const Tensor& moved) {
    if (running.defined() && !running.is_alias_of(moved)) running.detach().copy_(moved);
  };
  take(running_mean, wide_mean);
  take(running_var, wide_var);
  return {.mean = mean, .inverse = inverse, .counts = counts.to(torch::kInt32)};
}

Tensor normalise(const Tensor& input, const Tensor& weight, const Tensor& bias,
                 const Statistics& statistics, double eps) {
  if (input.numel() == 0) return torch::empty_like(input);
  return at::batch_norm_elemt(input, given(weight), given(bias), statistics.mean,
                              statistics.inverse, eps);
}

Gradients backward(const Tensor& gradient, const Tensor& input, const Tensor& weight,
                   const Statistics& statistics, ProcessGroup& group) {
  const std::int64_t channels = input.size(1);
  const bool is_empty = input.numel() == 0;
  const Tensor nothing = torch::zeros_like(statistics.mean);
  Gradients own{.input = torch::empty_like(input), .weight = nothing, .bias = nothing};
  Tensor sums = torch::zeros({2 * channels}, statistics.mean.options());
  const Tensor dy = gradient.contiguous(input.suggest_memory_format());
  if (!is_empty) {
    auto [sum_dy, sum_dy_x, of_weight, of_bias] = at::batch_norm_backward_reduce(
        dy, input, statistics.mean, statistics.inverse, given(weight), /*input_g=*/true,
        /*weight_g=*/true, /*bias_g=*/true);
    own.weight = of_weight;
    own.bias = of_bias;
    sums = torch::cat({sum_dy, sum_dy_x});
  }
  group.all_reduce(sums);
  if (!is_empty) {
    own.input = at::batch_norm_backward_elemt(
        dy, input, statistics.mean, statistics.inverse, given(weight), sums.narrow(0, 0, channels),
        sums.narrow(0, channels, channels), statistics.counts);
  }
  return own;
}

}  // namespace lockstep::sync_batch_norm_kernels
