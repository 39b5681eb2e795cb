// Loss scaling for training in float16, in which small gradients would become zero.
//
//   lockstep::GradScaler scaler;
//   for (...) {
//     optimizer.zero_grad();
//     scaler.scale(loss).backward();
//     scaler.unscale_(optimizer);   // only to use the gradients before step(), as for clipping
//     scaler.step(optimizer);       // skipped when a gradient is not finite
//     scaler.update();
//   }
//
// On a device, step() waits to know whether to perform the step. After
// optimizer.set_capturable(true), scaler.step_on_device(optimizer) does not wait.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <torch/types.h>

#include <lockstep/core/export.h>
#include <lockstep/optim/update_rule.h>

namespace lockstep {

struct LOCKSTEP_API GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;     ///< after `growth_interval` consecutive steps without overflow
  double backoff_factor = 0.5;  ///< after a step with an overflow
  std::int64_t growth_interval = 2000;
};

/// Like torch.amp.GradScaler, for one optimizer (Micikevicius et al., "Mixed Precision Training",
/// 2018). Gradients are float32, as autocast produces them. Not thread-safe.
///
/// Under DistributedDataParallel every rank has the same gradients, so all ranks skip the same
/// steps without communication. An optimizer whose ranks have different gradients, such as
/// ZeroRedundancyOptimizer, provides reduce_found_inf(), with which its ranks agree; for others see
/// reduce_found_inf_with().
class LOCKSTEP_API GradScaler {
 public:
  using FoundInfReduction = std::function<void(torch::Tensor& found_inf)>;

  /// Throws ConfigError for invalid options. `device` is that of the gradients.
  explicit GradScaler(const GradScalerOptions& options = {}, torch::Device device = torch::kCPU);

  /// The scaled loss, on which to call backward(); it may be on another device than the scale.
  torch::Tensor scale(const torch::Tensor& loss) const {
    return loss * (loss.device() == scale_.device() ? scale_ : scale_.to(loss.device()));
  }

  /// Divides the gradients by the scale, in place, and checks them for non-finite values. A tensor
  /// that occurs several times is divided once. Gradients may be on several devices. Throws
  /// ConfigError if called twice without an update() in between, and for float16 gradients.
  void unscale_(const Tensors& gradients);
  template <class Optimizer>
    requires requires(Optimizer& optimizer) { optimizer.gradients(); }
  void unscale_(Optimizer& optimizer) {
    unscale_(optimizer.gradients(), agreement_of(optimizer));
  }

  /// Calls unscale_(gradients) if that has not been done, then `optimizer_step()` unless a gradient
  /// is not finite. Returns whether the step was performed. Waits for the device.
  bool step(const Tensors& gradients, const std::function<void()>& optimizer_step);
  template <class Optimizer>
  bool step(Optimizer& optimizer) {
    if (!unscaled_) unscale_(optimizer);
    return step_if_finite([&] { optimizer.step(); });
  }

  /// Like step(), but the device decides whether the step is performed, and the host does not wait.
  /// `optimizer` must be capturable (Optimizer::set_capturable()), with all gradients on the
  /// scaler's device.
  template <class Optimizer>
  void step_on_device(Optimizer& optimizer) {
    if (!unscaled_) unscale_(optimizer);
    optimizer.step_unless(found_inf_);
  }

  /// Sets the scale of the next step. Throws ConfigError without a preceding unscale_() or step().
  void update();

  /// Sets a function that each unscale_() calls with a float tensor of one element, above 0 if this
  /// rank found a non-finite value. The function must replace the element with the maximum over the
  /// ranks that share the optimizer, and may communicate. It replaces the optimizer's own
  /// reduction.
  void reduce_found_inf_with(FoundInfReduction reduction) { reduction_ = std::move(reduction); }

  double get_scale() const { return scale_.item<double>(); }
  /// "scale" and "growth_tracker", for saving and loading. Shares memory.
  std::vector<std::pair<std::string, torch::Tensor>> state() const;

 private:
  template <class Optimizer>
  static FoundInfReduction agreement_of(Optimizer& optimizer) {
    if constexpr (requires(torch::Tensor& found) { optimizer.reduce_found_inf(found); }) {
      return [&optimizer](torch::Tensor& found) { optimizer.reduce_found_inf(found); };
    } else {
      return {};
    }
  }
  void unscale_(const Tensors& gradients, const FoundInfReduction& reduction);
  bool step_if_finite(const std::function<void()>& optimizer_step);

  GradScalerOptions options_;
  FoundInfReduction reduction_;
  torch::Tensor scale_;
  torch::Tensor growth_tracker_;  // consecutive steps without overflow
  torch::Tensor found_inf_;
  bool unscaled_ = false;
};

}  // namespace lockstep
