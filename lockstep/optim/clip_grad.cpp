#include <lockstep/optim/clip_grad.h>

#include <algorithm>
#include <cmath>

#include <lockstep/core/capture_scope.h>
#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/optim/by_place.h>
#include <lockstep/optim/distinct.h>

namespace lockstep {
namespace {

// Avoids a division by a norm of zero; PyTorch's value.
constexpr double kEpsilon = 1e-6;

// All gradients; sparse ones are coalesced first.
Tensors coalesced_gradients(const Tensors& parameters) {
  Tensors gradients;
  for (const auto& parameter : optim::distinct(parameters)) {
    torch::Tensor& gradient = const_cast<torch::Tensor&>(parameter).mutable_grad();
    if (!gradient.defined()) continue;
    if (gradient.is_sparse()) gradient = gradient.coalesce();
    gradients.push_back(gradient);
  }
  return gradients;
}

// The memory of each of `tensors`, once. For a sparse tensor it is that of the values, coalesced or
// as they are: in either case all uses of a row are scaled equally.
Tensors distinct_values(const Tensors& tensors, bool coalesced) {
  Tensors values = optim::distinct(tensors);
  for (torch::Tensor& tensor : values) {
    if (tensor.is_sparse()) tensor = (coalesced ? tensor.coalesce() : tensor)._values();
    tensor = optim::without_lazy_marks(tensor);
  }
  return values;
}

// Throws ConfigError if some tensors have values and others do not.
void require_values(const Tensors& tensors) {
  const auto is_meta = [](const torch::Tensor& tensor) { return tensor.is_meta(); };
  if (std::none_of(tensors.begin(), tensors.end(), is_meta)) return;
  if (std::all_of(tensors.begin(), tensors.end(), is_meta)) return;
  throw ConfigError(
      "clip_grad_norm_: some gradients are on the meta device and have no values, others do; give "
      "the parameters memory with Module::to() before the backward");
}

// The norm of each tensor, in at least float32: in float16 a norm beyond 65,504 would be infinite,
// and the gradients would become zero. Otherwise the types are those of PyTorch's norms. All are on
// the device of the first tensor.
Tensors norms_of(const Tensors& tensors, double norm_type) {
  Tensors norms;
  for (const Tensors& list : optim::by_place(tensors)) {
    const bool has_16_bits = list[0].element_size() == 2;
    for (const auto& norm : has_16_bits ? at::_foreach_norm(list, norm_type, torch::kFloat32)
                                        : at::_foreach_norm(list, norm_type)) {
      norms.push_back(norm.to(tensors[0].device()));
    }
  }
  return norms;
}

}  // namespace

torch::Tensor get_total_norm(const Tensors& given, double norm_type, bool error_if_nonfinite) {
  if (std::isnan(norm_type)) throw ConfigError("clip_grad_norm_: norm_type is not a number");
  const torch::NoGradGuard no_grad;
  Tensors tensors = distinct_values(given, /*coalesced=*/true);
  // LibTorch has no largest magnitude of an empty tensor.
  std::erase_if(tensors, [](const torch::Tensor& tensor) { return tensor.numel() == 0; });
  if (tensors.empty()) return torch::zeros({});
  require_values(tensors);
  const torch::Tensor total =
      at::linalg_vector_norm(at::stack(norms_of(tensors, norm_type)), norm_type);
  if (error_if_nonfinite && !std::isfinite(total.item<double>())) {
    throw Error(lockstep::str("clip_grad_norm_: the norm of ", tensors.size(), " gradients is ",
                              total.item<double>(), ", so that they cannot be clipped"));
  }
  return total;
}

void clip_grads_with_norm_(const Tensors& gradients, double max_norm,
                           const torch::Tensor& total_norm) {
  OptionCheck("clip_grad_norm_").at_least("max_norm", max_norm, 0);
  const torch::NoGradGuard no_grad;
  if (gradients.empty()) return;
  const torch::Tensor coefficient = (max_norm / (total_norm + kEpsilon)).clamp_max(1.0);
  // Skips a multiplication by one. On a GPU the multiplication costs less than the check.
  if (coefficient.is_cpu() && !is_capturing() && coefficient.item<double>() == 1.0) return;
  for (const Tensors& list : optim::by_place(distinct_values(gradients, /*coalesced=*/false))) {
    at::_foreach_mul_(list, coefficient.to(list[0].device()));
  }
}

torch::Tensor clip_grad_norm_(const Tensors& parameters, double max_norm, double norm_type,
                              bool error_if_nonfinite) {
  const torch::NoGradGuard no_grad;
  const Tensors gradients = coalesced_gradients(parameters);
  const torch::Tensor total = get_total_norm(gradients, norm_type, error_if_nonfinite);
  clip_grads_with_norm_(gradients, max_norm, total);
  return total;
}

void clip_grads_by_value_(const Tensors& given, double clip_value) {
  OptionCheck("clip_grad_value_").positive("clip_value", clip_value);
  const torch::NoGradGuard no_grad;
  Tensors gradients = optim::distinct(given);
  for (torch::Tensor& gradient : gradients) {
    if (gradient.is_sparse()) {
      throw ConfigError(
          "clip_grad_value_: a gradient is sparse, which cannot be clipped by value; "
          "clip by the norm, or set sparse = false in the embedding");
    }
    if (gradient.is_complex()) {
      throw ConfigError(
          "clip_grad_value_: a gradient is complex, which cannot be clipped by value; clip by the "
          "norm");
    }
    gradient = optim::without_lazy_marks(gradient);
  }
  for (const Tensors& list : optim::by_place(gradients)) {
    at::_foreach_clamp_min_(list, -clip_value);
    at::_foreach_clamp_max_(list, clip_value);
  }
}

void clip_grad_value_(const Tensors& parameters, double clip_value) {
  Tensors gradients;
  for (const torch::Tensor& parameter : parameters) {
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  }
  clip_grads_by_value_(gradients, clip_value);
}

}  // namespace lockstep
