#include <lockstep/parallel/pipeline/clip_grad_of_ranks.h>

#include <torch/utils.h>

#include <cmath>

#include <lockstep/core/error.h>
#include <lockstep/optim/clip_grad.h>
#include <lockstep/optim/distinct.h>
#include <lockstep/parallel/pipeline/tied_copies.h>

namespace lockstep {
namespace {

// The type of get_total_norm(), which must not depend on which copies are counted: all ranks scale
// the copies of a weight by the same bits.
torch::ScalarType type_of_norm(const Tensors& gradients) {
  torch::ScalarType type = torch::kFloat32;
  for (const torch::Tensor& gradient : gradients) {
    type = c10::promoteTypes(type, c10::toRealValueType(gradient.scalar_type()));
  }
  return type;
}

}  // namespace

torch::Tensor clip_grad_norm_(const Tensors& parameters, double max_norm, ProcessGroup& group,
                              double norm_type) {
  if (!(norm_type > 0)) {
    throw ConfigError(
        lockstep::str("clip_grad_norm_: norm_type must be positive, got ", norm_type));
  }
  const torch::NoGradGuard no_grad;
  Tensors gradients, counted;
  for (const torch::Tensor& parameter : optim::distinct(parameters)) {
    if (!parameter.grad().defined()) continue;
    gradients.push_back(parameter.grad());
    if (!pipeline::is_counted_elsewhere(parameter)) counted.push_back(parameter.grad());
  }
  torch::Tensor total = get_total_norm(counted, norm_type).to(torch::kFloat64);
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
  total = total.to(type_of_norm(gradients));
  clip_grads_with_norm_(gradients, max_norm, total);
  return total;
}

}  // namespace lockstep
