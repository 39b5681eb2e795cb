// Tensors for tests of collectives: values that every rank can compute for all ranks, and their
// reductions in a single process.
#pragma once

#include <string>
#include <vector>

#include <torch/types.h>

#include <lockstep/comm/call/reduce_op.h>
#include <lockstep/core/error.h>

namespace lockstep::testing_support {

/// The values of `rank`: small integers, whose sums are exact in every type and order.
inline torch::Tensor values(at::IntArrayRef shape, torch::ScalarType type, int rank) {
  const auto count = c10::multiply_integers(shape);
  auto numbers = (torch::arange(count, torch::kInt64) * 7 + rank * 3) % 5 + (rank % 2);
  if (type == torch::kBool) numbers = numbers.remainder(2);
  return numbers.view(shape).to(type);
}

inline torch::Tensor combine(const torch::Tensor& a, const torch::Tensor& b, ReduceOp op) {
  using Kind = ReduceOp::Kind;
  const bool boolean = a.scalar_type() == torch::kBool;
  switch (op.kind) {
    case Kind::kProduct:
      return boolean ? torch::logical_and(a, b) : a * b;
    case Kind::kMin:
      return torch::minimum(a, b);
    case Kind::kMax:
      return torch::maximum(a, b);
    case Kind::kBitwiseAnd:
      return torch::bitwise_and(a, b);
    case Kind::kBitwiseOr:
      return torch::bitwise_or(a, b);
    case Kind::kBitwiseXor:
      return torch::bitwise_xor(a, b);
    default:
      return boolean ? torch::logical_or(a, b) : a + b;
  }
}

/// The reduction of `inputs` in rank order, in a single process.
inline torch::Tensor reduced(const std::vector<torch::Tensor>& inputs, ReduceOp op) {
  const auto type = inputs[0].scalar_type();
  const bool half = type == torch::kFloat16 || type == torch::kBFloat16;
  const auto term = [&](std::size_t i) {
    auto value = half ? inputs[i].to(torch::kFloat32) : inputs[i];
    return op.kind == ReduceOp::Kind::kPreMultipliedSum ? value * op.factor : value;
  };
  auto result = term(0).clone();
  for (std::size_t i = 1; i < inputs.size(); ++i) result = combine(result, term(i), op);
  if (op == ReduceOp::kAverage) result = result / static_cast<double>(inputs.size());
  return result.to(type);
}

/// The reduction of all ranks' values().
inline torch::Tensor reduced_values(at::IntArrayRef shape, torch::ScalarType type, int size,
                                    ReduceOp op) {
  std::vector<torch::Tensor> inputs;
  for (int rank = 0; rank < size; ++rank) inputs.push_back(values(shape, type, rank));
  return reduced(inputs, op);
}

/// Throws if the tensors differ, so that it can be used on the threads of ranks. Floats may differ
/// in their last bits.
inline void require_equal(const torch::Tensor& got, const torch::Tensor& expected,
                          const std::string& what) {
  const bool same = got.sizes() == expected.sizes() &&
                    got.scalar_type() == expected.scalar_type() &&
                    (got.is_floating_point() ? torch::allclose(got, expected, 1e-5, 1e-6, true)
                                             : torch::equal(got, expected));
  if (!same)
    throw Error(lockstep::str(what, ": got ", got.flatten(), ", expected ", expected.flatten()));
}

/// The memory layouts that a caller's tensor may have.
enum class Layout { kContiguous, kView, kStrided, kTransposed, kRowsApart };

inline const std::vector<Layout>& all_layouts() {
  static const std::vector<Layout> layouts = {Layout::kContiguous, Layout::kView, Layout::kStrided,
                                              Layout::kTransposed, Layout::kRowsApart};
  return layouts;
}

/// A tensor with the values of `tensor` and the given memory layout.
inline torch::Tensor in_layout(const torch::Tensor& tensor, Layout layout) {
  std::vector<std::int64_t> larger(tensor.sizes().begin(), tensor.sizes().end());
  torch::Tensor result;
  switch (layout) {
    case Layout::kContiguous:
      return tensor.clone();
    case Layout::kView: {
      auto memory = torch::empty({tensor.numel() + 3}, tensor.options());
      result = memory.narrow(0, 2, tensor.numel()).view(tensor.sizes());
      break;
    }
    case Layout::kStrided:
      if (larger.empty()) return tensor.clone();
      larger.push_back(2);
      result = torch::empty(larger, tensor.options()).select(-1, 1);
      break;
    case Layout::kTransposed:
      if (tensor.dim() < 2) return tensor.clone();
      std::swap(larger.front(), larger.back());
      result = torch::empty(larger, tensor.options()).transpose(0, -1);
      break;
    case Layout::kRowsApart:
      if (larger.empty()) return tensor.clone();
      larger.back() += 5;
      result = torch::empty(larger, tensor.options()).narrow(-1, 1, tensor.size(-1));
      break;
  }
  return result.copy_(tensor);
}

}  // namespace lockstep::testing_support
