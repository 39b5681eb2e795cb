// Clips the gradients of several ranks by their common norm.
#pragma once

#include <vector>

#include <torch/types.h>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/core/export.h>

namespace lockstep {

using Tensors = std::vector<torch::Tensor>;

/// Collective. Clips the gradients of all ranks of `group` by their common norm, which it returns.
/// Each rank gives the parameters of its own stages. A weight of which several ranks have a copy
/// (PipelineOptions::tied) counts once in the norm, and all of its copies are scaled. `norm_type`
/// is positive; infinity selects the largest absolute element. The result equals
/// torch.nn.utils.clip_grad_norm_ on all parameters together, up to the order of additions. Does
/// not coalesce sparse gradients.
LOCKSTEP_API torch::Tensor clip_grad_norm_(const Tensors& parameters, double max_norm,
                                           ProcessGroup& group, double norm_type = 2);

}  // namespace lockstep
