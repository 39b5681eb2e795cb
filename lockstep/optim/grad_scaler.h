// Loss scaling for training in float16, whose small gradients would become zero.
//
//   lockstep::GradScaler scaler;
//   for (...) {
//     optimizer.zero_grad();
//     scaler.scale(loss).backward();
//     scaler.unscale_(optimizer);   // only where they are looked at, as for clipping
//     scaler.step(optimizer);                   // skipped when a gradient is not finite
//     scaler.update();
//   }
//
// Where a device computes, step() waits for it to know whether to do the step. After
// optimizer.set_capturable(true), scaler.step_on_device(optimizer) does not.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <torch/types.h>

#include <lockstep/optim/update_rule.h>

namespace lockstep {

struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;     ///< after `growth_interval` steps in a row without overflow
  double backoff_factor = 0.5;  ///< after a step with one
  std::int64_t growth_interval = 2000;
};

/// As torch.amp.GradScaler, for one optimizer (Micikevicius et al., "Mixed Precision Training",
/// 2018). Gradients are float32, as autocast leaves them. Not thread-safe.
///
/// Under DistributedDataParallel every rank has the same gradients, so that all skip the same steps
/// and nothing is communicated. An optimizer whose ranks have different ones, as
/// ZeroRedundancyOptimizer, has a reduce_found_inf(), by which its ranks agree; elsewhere see
/// reduce_found_inf_with().
class GradScaler {
 public:
  using FoundInfReduction = std::function<void(torch::Tensor& found_inf)>;

  /// ConfigError for options that cannot be. `device` is that of the gradients.
  explicit GradScaler(const GradScalerOptions& options = {}, torch::Device device = torch::kCPU);

  /// The loss to call backward() on; it may be on another device than the scale.
  torch::Tensor scale(const torch::Tensor& loss) const {
    return loss * (loss.device() == scale_.device() ? scale_ : scale_.to(loss.device()));
  }

  /// Divides by the scale, in place, and looks for what is not finite; a tensor that occurs several
  /// times is divided once. Gradients may be on several devices. Once a step. ConfigError for
  /// a second time before update() and for float16 gradients.
  void unscale_(const Tensors& gradients);
  template <class Optimizer>
    requires requires(Optimizer& optimizer) { optimizer.gradients(); }
  void unscale_(Optimizer& optimizer) {
    unscale_(optimizer.gradients(), agreement_of(optimizer));
  }

  /// `optimizer_step()` unless a gradient is not finite, after unscale_(gradients) if that has not
  /// been called. Returns whether the step was done. Waits for the device.
  bool step(const Tensors& gradients, const std::function<void()>& optimizer_step);
  template <class Optimizer>
  bool step(Optimizer& optimizer) {
    if (!unscaled_) unscale_(optimizer);
    return step_if_finite([&] { optimizer.step(); });
  }

  /// As step(), but the device decides whether it is done, and the host waits for nothing.
  /// `optimizer` is capturable (Optimizer::set_capturable()), and all its gradients are on the
  /// scaler's device.
  template <class Optimizer>
  void step_on_device(Optimizer& optimizer) {
    if (!unscaled_) unscale_(optimizer);
    optimizer.step_unless(found_inf_);
  }

  /// The scale of the next step. ConfigError without an unscale_() or step() before.
  void update();

  /// Called by each unscale_() with a float of one element: above 0 where this rank found something
  /// that is not finite. It must become the maximum over the ranks that share the optimizer; it may
  /// communicate. Takes the place of the optimizer's own.
  void reduce_found_inf_with(FoundInfReduction reduction) { reduction_ = std::move(reduction); }

  double get_scale() const { return scale_.item<double>(); }
  /// "scale" and "growth_tracker", to save and to load. Shares memory.
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
  torch::Tensor growth_tracker_;  // steps without overflow
  torch::Tensor found_inf_;
  bool unscaled_ = false;
};

}  // namespace lockstep
