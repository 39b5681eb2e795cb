// The update rules that make_update_rule() chooses from. Internal to the room.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include <lockstep/optim/update_rule.h>

namespace lockstep {

std::unique_ptr<UpdateRule> make_sgd_rule(const SgdOptions& options);
std::unique_ptr<UpdateRule> make_adam_rule(const AdamOptions& options);
std::unique_ptr<UpdateRule> make_adamw_rule(const AdamWOptions& options);

/// DeviceStep::found_inf as the fused kernels take it.
inline std::optional<torch::Tensor> found_inf_of(const DeviceStep& step) {
  return step.found_inf.defined() ? std::optional(step.found_inf) : std::nullopt;
}

/// What one call of a fused kernel works on: tensors of one device and one type.
using KernelCall = std::function<void(const Tensors& parameters, const Tensors& gradients,
                                      const std::vector<Tensors>& states)>;

/// Calls `kernel` once where all parameters are of one device and type, as they nearly always are,
/// else once for each such kind; never for nothing.
void call_for_each_kind(const Tensors& parameters, const Tensors& gradients,
                        const std::vector<Tensors>& states, const KernelCall& kernel);

}  // namespace lockstep
