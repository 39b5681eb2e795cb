// Gradient clipping by the norm of all gradients together or by value, as torch.nn.utils does it.
#pragma once

#include <vector>

#include <torch/types.h>

#include <lockstep/optim/update_rule.h>

namespace lockstep {

/// Scales the gradients of `parameters` so that their norm, as of one vector, is at most
/// `max_norm`, and returns the norm before. Call it between backward and step: under
/// DistributedDataParallel all ranks get the same norm. `norm_type` is p of the p-norm, infinity
/// for the largest magnitude. With `error_if_nonfinite`, Error where the norm is not finite, and
/// nothing changed; else the gradients become what that norm makes of them. Coalesces sparse
/// gradients. The norm has the widest type of the gradients, and at least float32: PyTorch's is
/// infinite where all are float16 and it exceeds 65,504. A tensor that occurs several times, as a
/// tied weight does in C++'s Module::parameters(), counts once, here and in the halves below.
torch::Tensor clip_grad_norm_(const Tensors& parameters, double max_norm, double norm_type = 2,
                              bool error_if_nonfinite = false);

/// The two halves, for gradients that lie elsewhere or that several ranks hold parts of: the norm
/// of all `tensors` together (zero for none), and the scaling of gradients given the norm of all.
/// The norm of a sparse gradient is that of its coalesced form. Neither function coalesces the
/// gradient itself.
torch::Tensor get_total_norm(const Tensors& tensors, double norm_type = 2,
                             bool error_if_nonfinite = false);
void clip_grads_with_norm_(const Tensors& gradients, double max_norm,
                           const torch::Tensor& total_norm);

/// Clamps each element of the gradients of `parameters` to [-clip_value, clip_value]. ConfigError
/// unless that is positive, and for a sparse gradient, and nothing changed.
void clip_grad_value_(const Tensors& parameters, double clip_value);
/// As above, for dense gradients that lie elsewhere.
void clip_grads_by_value_(const Tensors& gradients, double clip_value);

}  // namespace lockstep
