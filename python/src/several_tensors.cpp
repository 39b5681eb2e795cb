#include "several_tensors.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <memory>

#include <lockstep/core/strings.h>

#include "finished_work.h"

namespace lockstep_c10d {
namespace {

void check_alike(const char* call, const Tensors& tensors) {
  if (tensors.empty())
    C10_THROW_ERROR(ValueError, lockstep::str(call, ": got no tensors, expected at least 1"));
  for (const at::Tensor& tensor : tensors) {
    if (tensor.sizes() == tensors[0].sizes() && tensor.scalar_type() == tensors[0].scalar_type() &&
        tensor.layout() == tensors[0].layout()) {
      continue;
    }
    C10_THROW_ERROR(ValueError, lockstep::str(call, ": got a ", tensor.toString(), tensor.sizes(),
                                              " and a ", tensors[0].toString(), tensors[0].sizes(),
                                              ", expected tensors of one shape, type and layout"));
  }
}

at::Tensor combined(const at::Tensor& a, const at::Tensor& b, lockstep::ReduceOp op) {
  using Kind = lockstep::ReduceOp::Kind;
  switch (op.kind) {
    case Kind::kProduct:
      return a * b;
    case Kind::kMin:
      return at::minimum(a, b);
    case Kind::kMax:
      return at::maximum(a, b);
    case Kind::kBitwiseAnd:
      return at::bitwise_and(a, b);
    case Kind::kBitwiseOr:
      return at::bitwise_or(a, b);
    case Kind::kBitwiseXor:
      return at::bitwise_xor(a, b);
    default:
      return a + b;
  }
}

}  // namespace

const at::Tensor& single(const Tensors& tensors, const char* call) {
  if (tensors.size() != 1) {
    C10_THROW_ERROR(ValueError, lockstep::str(call, ": got ", tensors.size(),
                                              " tensors, expected 1: a rank has one device"));
  }
  return tensors.front();
}

at::Tensor reduced_here(const Tensors& tensors, lockstep::ReduceOp op) {
  const at::NoGradGuard no_grad;
  at::Tensor result = tensors[0];
  for (std::size_t i = 1; i < tensors.size(); ++i) result = combined(result, tensors[i], op);
  return result;
}

lockstep::WorkPtr all_reduce(lockstep::ProcessGroup& group, const Tensors& tensors,
                             lockstep::ReduceOp op) {
  if (tensors.size() == 1) [[likely]]
    return group.async_all_reduce(tensors[0], op);
  check_alike("all_reduce", tensors);
  const at::Tensor reduced = reduced_here(tensors, op);
  return std::make_shared<FinishedWork>(group.async_all_reduce(reduced, op),
                                        [tensors, reduced, op]() mutable {
                                          // The all-reduce divided the sums by the number of ranks
                                          // only; divide also by the number of tensors per rank.
                                          if (op == lockstep::ReduceOp::kAverage)
                                            reduced.div_(static_cast<double>(tensors.size()));
                                          for (const at::Tensor& tensor : tensors)
                                            tensor.copy_(reduced);
                                        });
}

lockstep::WorkPtr broadcast(lockstep::ProcessGroup& group, const Tensors& tensors, int root,
                            int root_tensor) {
  if (tensors.size() == 1 && root_tensor == 0) [[likely]]
    return group.async_broadcast(tensors[0], root);
  check_alike("broadcast", tensors);
  if (root_tensor < 0 || root_tensor >= static_cast<int>(tensors.size())) {
    C10_THROW_ERROR(ValueError, lockstep::str("broadcast: invalid root tensor: ", root_tensor,
                                              ", expected from 0 to ", tensors.size() - 1));
  }
  const at::Tensor& source = tensors[static_cast<std::size_t>(root_tensor)];
  return std::make_shared<FinishedWork>(group.async_broadcast(source, root), [tensors, source] {
    for (const at::Tensor& tensor : tensors) {
      if (!tensor.is_same(source)) tensor.copy_(source);
    }
  });
}

lockstep::WorkPtr all_gather(lockstep::ProcessGroup& group, const std::vector<Tensors>& outputs,
                             const Tensors& inputs) {
  check_alike("all_gather", inputs);
  if (outputs.size() != inputs.size()) {
    C10_THROW_ERROR(ValueError,
                    lockstep::str("all_gather: got ", outputs.size(), " lists of outputs for ",
                                  inputs.size(), " inputs, expected one for each"));
  }
  if (inputs.size() == 1) [[likely]]
    return group.async_all_gather(outputs[0], inputs[0]);
  const std::size_t count = inputs.size() * static_cast<std::size_t>(group.size());
  for (const Tensors& list : outputs) {
    check_alike("all_gather", list);
    if (list[0].scalar_type() != inputs[0].scalar_type()) {
      C10_THROW_ERROR(ValueError, lockstep::str("all_gather: got outputs of type ",
                                                list[0].toString(), " for inputs of type ",
                                                inputs[0].toString(), ", expected one type"));
    }
    if (list.size() == count && list[0].sizes() == inputs[0].sizes()) continue;
    C10_THROW_ERROR(ValueError,
                    lockstep::str("all_gather: got a list of ", list.size(), " outputs of shape ",
                                  list[0].sizes(), ", expected ", count, " of shape ",
                                  inputs[0].sizes(), ", the inputs of all ranks"));
  }
  const at::NoGradGuard no_grad;
  const at::Tensor mine = at::stack(inputs);
  const at::Tensor all =
      at::empty({static_cast<std::int64_t>(count), mine.numel() / mine.size(0)}, mine.options());
  return std::make_shared<FinishedWork>(
      group.async_all_gather_into_tensor(all, mine),
      [outputs, all, shape = inputs[0].sizes().vec()] {
        for (const Tensors& list : outputs) {
          for (std::size_t i = 0; i < list.size(); ++i) {
            list[i].copy_(all[static_cast<std::int64_t>(i)].view(shape));
          }
        }
      });
}

}  // namespace lockstep_c10d
