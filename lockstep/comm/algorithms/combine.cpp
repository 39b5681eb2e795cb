#include <lockstep/comm/algorithms/combine.h>

#include <lockstep/comm/call/tensor_type.h>
#include <lockstep/comm/kernels/reduce.h>
#include <lockstep/core/error.h>

namespace lockstep::comm {
namespace {

std::byte* bytes_of(const torch::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data_ptr());
}

torch::Tensor combined(const torch::Tensor& a, const torch::Tensor& b, ReduceOp op) {
  switch (op.kind) {
    case ReduceOp::Kind::kSum:
      return a.scalar_type() == torch::kBool ? at::logical_or(a, b) : at::add(a, b);
    case ReduceOp::Kind::kProduct:
      return a.scalar_type() == torch::kBool ? at::logical_and(a, b) : at::mul(a, b);
    case ReduceOp::Kind::kMin:
      return at::minimum(a, b);
    case ReduceOp::Kind::kMax:
      return at::maximum(a, b);
    case ReduceOp::Kind::kBitwiseAnd:
      return at::bitwise_and(a, b);
    case ReduceOp::Kind::kBitwiseOr:
      return at::bitwise_or(a, b);
    case ReduceOp::Kind::kBitwiseXor:
      return at::bitwise_xor(a, b);
    case ReduceOp::Kind::kAverage:
    case ReduceOp::Kind::kPreMultipliedSum:
      break;
  }
  LOCKSTEP_CHECK(false, reduce_op_name(op.kind), " is a sum with a factor: the caller scales");
}

}  // namespace

void combine(const std::vector<torch::Tensor>& sources, torch::Tensor destination, ReduceOp op) {
  if (destination.is_cpu()) {
    std::vector<const std::byte*> from;
    for (const torch::Tensor& source : sources) from.push_back(bytes_of(source));
    std::byte* const to[] = {bytes_of(destination)};
    reduce(from, to, static_cast<std::size_t>(destination.numel()),
           data_type_of(destination.scalar_type()), op);
    return;
  }
  const torch::NoGradGuard no_grad;
  torch::Tensor result = sources[0];
  for (std::size_t i = 1; i < sources.size(); ++i) result = combined(result, sources[i], op);
  destination.copy_(result);
}

void scale_tensor(torch::Tensor tensor, double factor) {
  if (tensor.is_cpu()) {
    scale(bytes_of(tensor), static_cast<std::size_t>(tensor.numel()),
          data_type_of(tensor.scalar_type()), factor);
    return;
  }
  const torch::NoGradGuard no_grad;
  tensor.mul_(factor);
}

}  // namespace lockstep::comm
