#include <lockstep/parallel/pipeline/clip_grad_of_ranks.h>

#include <torch/utils.h>

#include <cmath>

#include <lockstep/core/error.h>
#include <lockstep/optim/clip_grad.h>
#include <lockstep/optim/distinct.h>

namespace lockstep {

torch::Tensor clip_grad_norm_(const Tensors& parameters, double max_norm, ProcessGroup& group,
                              double norm_type) {
  if (!(norm_type > 0)) {
    throw ConfigError(
        lockstep::str("clip_grad_norm_: norm_type must be positive, got ", norm_type));
  }
  const torch::NoGradGuard no_grad;
  Tensors gradients;
  for (const torch::Tensor& parameter : optim::distinct(parameters)) {
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  }
  const torch::Tensor own = get_total_norm(gradients, norm_type);
  torch::Tensor total = own.to(torch::kFloat64);
  if (group.traits().memory == BackendTraits::Memory::kDevice) {
    // A rank without parameters cannot name the group's device otherwise.
    total = total.to(group.allocate({}, torch::kFloat64).device());
  } else if (!parameters.empty()) {
    total = total.to(parameters[0].device());
  }
  if (std::isinf(norm_type)) {
    group.all_reduce(total, ReduceOp::kMax);
  } else {
    total = total.pow(norm_type);  // powers of norms can be added up
    group.all_reduce(total, ReduceOp::kSum);
    total = total.pow(1 / norm_type);
  }
  total = total.to(own.scalar_type());
  clip_grads_with_norm_(gradients, max_norm, total);
  return total;
}

}  // namespace lockstep
