// The update rules from which make_update_rule() chooses. Internal to this folder.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include <lockstep/optim/update_rule.h>

namespace lockstep::optim {

std::unique_ptr<detail::UpdateRule> make_sgd_rule(const SgdOptions& options);
std::unique_ptr<detail::UpdateRule> make_adam_rule(const AdamOptions& options);
std::unique_ptr<detail::UpdateRule> make_adamw_rule(const AdamWOptions& options);

/// DeviceStep::found_inf in the form that the fused kernels take.
inline std::optional<torch::Tensor> found_inf_of(const detail::DeviceStep& step) {
  return step.found_inf.defined() ? std::optional(step.found_inf) : std::nullopt;
}

/// One call of a fused kernel, for tensors of one device and one type.
using KernelCall = std::function<void(const Tensors& parameters, const Tensors& gradients,
                                      const std::vector<Tensors>& states)>;

/// Calls `kernel` once for each combination of device and type among the parameters, nearly always
/// a single one; never with empty lists. Complex tensors become views of their real and imaginary
/// parts; none may be a lazy conjugate or negative.
void call_for_each_kind(const Tensors& parameters, const Tensors& gradients,
                        const std::vector<Tensors>& states, const KernelCall& kernel);

}  // namespace lockstep::optim
