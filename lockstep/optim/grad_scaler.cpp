#include <lockstep/optim/grad_scaler.h>

#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/optim/by_place.h>
#include <lockstep/optim/distinct.h>

namespace lockstep {

GradScaler::GradScaler(const GradScalerOptions& options, torch::Device device)
    : options_(options),
      scale_(torch::scalar_tensor(options.init_scale, torch::TensorOptions(device))),
      growth_tracker_(torch::scalar_tensor(0, torch::TensorOptions(device).dtype(torch::kInt32))),
      found_inf_(torch::scalar_tensor(0, torch::TensorOptions(device))) {
  const OptionCheck check("GradScaler");
  check.positive("init_scale", options.init_scale);
  check.at_least("growth_factor", options.growth_factor, 1);
  check.positive("backoff_factor", options.backoff_factor);
  check.in_range("backoff_factor", options.backoff_factor, 0, 1);
  check.at_least("growth_interval", static_cast<double>(options.growth_interval), 1);
}

void GradScaler::unscale_(const Tensors& gradients) { unscale_(gradients, {}); }

void GradScaler::unscale_(const Tensors& gradients, const FoundInfReduction& reduction) {
  const torch::NoGradGuard no_grad;
  if (unscaled_) {
    throw ConfigError(
        "GradScaler: unscale_() was called twice in a step; call update() after each");
  }
  Tensors values;
  for (const auto& gradient : optim::distinct(gradients)) {
    if (gradient.scalar_type() == torch::kHalf || gradient.scalar_type() == torch::kComplexHalf) {
      throw ConfigError(
          "GradScaler: got float16 gradients; keep the parameters float32 and let autocast do the "
          "rest");
    }
    const torch::Tensor memory =
        optim::without_lazy_marks(gradient.is_sparse() ? gradient._values() : gradient);
    values.push_back(memory.is_complex() ? at::view_as_real(memory) : memory);
    // The kernel does not tell autograd that it writes.
    if (!memory.is_inference()) memory.unsafeGetTensorImpl()->bump_version();
  }
  // The reciprocal of a float may exceed the range of float.
  const torch::Tensor inverse = scale_.to(torch::kFloat64).reciprocal().to(torch::kFloat32);
  found_inf_.zero_();
  for (const Tensors& tensors : optim::by_place(values)) {
    const torch::Device device = tensors.front().device();
    if (device == found_inf_.device()) {
      at::_amp_foreach_non_finite_check_and_unscale_(tensors, found_inf_, inverse);
      continue;
    }
    torch::Tensor found = torch::zeros_like(found_inf_, torch::TensorOptions(device));
    at::_amp_foreach_non_finite_check_and_unscale_(tensors, found, inverse.to(device));
    // The optimizers' kernels test for exactly 1.
    found_inf_.add_(found.to(found_inf_.device())).clamp_max_(1);
  }
  if (const auto& agree = reduction_ ? reduction_ : reduction; agree) agree(found_inf_);
  unscaled_ = true;
}

bool GradScaler::step(const Tensors& gradients, const std::function<void()>& optimizer_step) {
  if (!unscaled_) unscale_(gradients);
  return step_if_finite(optimizer_step);
}

bool GradScaler::step_if_finite(const std::function<void()>& optimizer_step) {
  if (found_inf_.item<float>() > 0) return false;
  optimizer_step();
  return true;
}

void GradScaler::update() {
  const torch::NoGradGuard no_grad;
  if (!unscaled_) throw ConfigError("GradScaler: update() needs an unscale_() or a step() before");
  unscaled_ = false;
  at::_amp_update_scale_(scale_, growth_tracker_, found_inf_, options_.growth_factor,
                         options_.backoff_factor, options_.growth_interval);
}

std::vector<std::pair<std::string, torch::Tensor>> GradScaler::state() const {
  return {{"scale", scale_}, {"growth_tracker", growth_tracker_}};
}

}  // namespace lockstep
