// Gradient clipping by the norm of all gradients together or by value, as in torch.nn.utils.
#pragma once

#include <vector>

#include <torch/types.h>

#include <lockstep/core/export.h>
#include <lockstep/optim/update_rule.h>

namespace lockstep {

/// Scales the gradients of `parameters` so that their total norm is at most `max_norm`, and returns
/// the norm before scaling. Call it between backward and step: under DistributedDataParallel all
/// ranks get the same norm. `norm_type` is p of the p-norm; infinity selects the largest magnitude.
/// If the norm is not finite and `error_if_nonfinite` is true, throws an Error and scales nothing;
/// if it is false, scales the gradients by that norm all the same. Coalesces sparse gradients. The
/// norm has the widest type among the gradients, and at least float32, whereas PyTorch's norm of
/// float16 gradients is infinite above 65,504. Gradients may be on several devices; the norm is on
/// that of the first one. A tensor that occurs several times, like a tied weight in C++'s
/// Module::parameters(), counts once, here and in the functions below. Throws ConfigError, with
/// nothing changed, if `max_norm` is negative or not a number.
LOCKSTEP_API torch::Tensor clip_grad_norm_(const Tensors& parameters, double max_norm,
                                           double norm_type = 2, bool error_if_nonfinite = false);

/// The two halves of clip_grad_norm_(), for gradients that are not in .grad or are divided among
/// ranks: the total norm of `tensors` (zero for none), and the scaling of gradients given the total
/// norm. The norm of a sparse gradient is that of its coalesced form. Neither function coalesces
/// the gradient itself.
LOCKSTEP_API torch::Tensor get_total_norm(const Tensors& tensors, double norm_type = 2,
                                          bool error_if_nonfinite = false);
LOCKSTEP_API void clip_grads_with_norm_(const Tensors& gradients, double max_norm,
                                        const torch::Tensor& total_norm);

/// Clamps each element of the gradients of `parameters` to [-clip_value, clip_value]. Throws
/// ConfigError, with nothing changed, if `clip_value` is not positive or a gradient is sparse or
/// complex.
LOCKSTEP_API void clip_grad_value_(const Tensors& parameters, double clip_value);
/// As above, for dense gradients that are not in .grad.
LOCKSTEP_API void clip_grads_by_value_(const Tensors& gradients, double clip_value);

}  // namespace lockstep
