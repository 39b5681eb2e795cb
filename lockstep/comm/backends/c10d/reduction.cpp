#include <lockstep/comm/backends/c10d/reduction.h>

#include <array>
#include <utility>
#include <vector>

#include <lockstep/comm/call/device_stream.h>
#include <lockstep/comm/kernels/reduce.h>
#include <lockstep/core/error.h>

namespace lockstep::c10d_adapter {
namespace {

using Kind = ReduceOp::Kind;

bool is_half(detail::DataType type) {
  return type == detail::DataType::kFloat16 || type == detail::DataType::kBFloat16;
}

// For bytes that are 0 or 1, "or" is the maximum and "and" is the minimum.
Kind as_bytes(Kind kind) {
  switch (kind) {
    case Kind::kSum:
    case Kind::kBitwiseOr:
      return Kind::kMax;
    case Kind::kProduct:
    case Kind::kBitwiseAnd:
      return Kind::kMin;
    default:
      return kind;
  }
}

c10d::ReduceOp library_op(const LibraryReductions& library, Kind kind) {
  switch (kind) {
    case Kind::kAverage:
      return library.averages ? c10d::ReduceOp::AVG : c10d::ReduceOp::SUM;
    case Kind::kSum:
    case Kind::kPreMultipliedSum:
      return c10d::ReduceOp::SUM;
    case Kind::kProduct:
      return c10d::ReduceOp::PRODUCT;
    case Kind::kMin:
      return c10d::ReduceOp::MIN;
    case Kind::kMax:
      return c10d::ReduceOp::MAX;
    case Kind::kBitwiseAnd:
      return c10d::ReduceOp::BAND;
    case Kind::kBitwiseOr:
      return c10d::ReduceOp::BOR;
    case Kind::kBitwiseXor:
      return c10d::ReduceOp::BXOR;
  }
  throw InternalError("no such reduction");
}

void accumulate(torch::Tensor& sum, const torch::Tensor& value, Kind kind) {
  switch (kind) {
    case Kind::kSum:
    case Kind::kAverage:
    case Kind::kPreMultipliedSum:
      sum.add_(value);
      return;
    case Kind::kProduct:
      sum.mul_(value);
      return;
    case Kind::kMin:
      sum.copy_(torch::minimum(sum, value));
      return;
    case Kind::kMax:
      sum.copy_(torch::maximum(sum, value));
      return;
    case Kind::kBitwiseAnd:
      sum.bitwise_and_(value);
      return;
    case Kind::kBitwiseOr:
      sum.bitwise_or_(value);
      return;
    case Kind::kBitwiseXor:
      sum.bitwise_xor_(value);
      return;
  }
}

// Does the arithmetic of comm::reduce with LibTorch's kernels, for tensors on a GPU.
void combine_on_device(torch::Tensor destination, const torch::Tensor& pieces, int size,
                       const CallDescription& call) {
  const auto wide = is_half(call.type) ? torch::kFloat32 : pieces.scalar_type();
  const auto rows = pieces.view({size, -1});
  const auto row = [&](int rank) {
    auto values = rows[rank].to(wide, /*non_blocking=*/false, /*copy=*/true);
    if (call.op.kind == Kind::kPreMultipliedSum) values.mul_(call.op.factor);
    return values;
  };
  auto sum = row(0);
  for (int rank = 1; rank < size; ++rank) accumulate(sum, row(rank), call.op.kind);
  if (call.op.kind == Kind::kAverage) sum.div_(size);
  destination.copy_(sum);
  comm::record_current_stream(pieces);  // made in the stream that started the operation
}

}  // namespace

bool library_reduces(const LibraryReductions& library, detail::DataType type, ReduceOp op) {
  if (type == detail::DataType::kInt16 || type == detail::DataType::kByte) return false;
  if (type == detail::DataType::kBool) {
    return library.bitwise || as_bytes(op.kind) != Kind::kBitwiseXor;
  }
  switch (op.kind) {
    case Kind::kMin:
    case Kind::kMax:
      return !detail::is_floating_point(type);
    case Kind::kBitwiseAnd:
    case Kind::kBitwiseOr:
    case Kind::kBitwiseXor:
      return library.bitwise;
    default:
      return true;
  }
}

LibraryReduction prepare(const LibraryReductions& library, const CallDescription& call,
                         torch::Tensor tensor, bool in_place, int size) {
  const torch::NoGradGuard no_grad;
  Kind kind = call.op.kind;
  tensor = tensor.detach();
  if (call.type == detail::DataType::kBool) {
    tensor = tensor.view(torch::kUInt8);
    kind = as_bytes(kind);
  }
  if (is_half(call.type) && !library.precise_halves) {
    tensor = tensor.to(torch::kFloat32);
  } else if (!in_place) {
    tensor = tensor.clone();
  }
  if (kind == Kind::kPreMultipliedSum) tensor.mul_(call.op.factor);
  LibraryReduction reduction{tensor, library_op(library, kind), {}};
  const bool divide = kind == Kind::kAverage && !library.averages;
  reduction.finish = [tensor, divide, size](torch::Tensor destination) mutable {
    const torch::NoGradGuard no_grad;
    if (divide) tensor.div_(size);
    if (destination.data_ptr() == tensor.data_ptr()) return;
    destination.detach().copy_(destination.scalar_type() == torch::kBool ? tensor.view(torch::kBool)
                                                                         : tensor);
    comm::record_current_stream(tensor);  // a copy made in the stream that started the operation
  };
  return reduction;
}

void combine(torch::Tensor destination, const torch::Tensor& pieces, int size,
             const CallDescription& call) {
  const torch::NoGradGuard no_grad;
  if (!destination.is_cpu()) return combine_on_device(destination, pieces, size, call);
  const auto* data = static_cast<const std::byte*>(pieces.data_ptr());
  const std::size_t bytes = destination.nbytes();
  std::vector<const std::byte*> sources;
  for (int rank = 0; rank < size; ++rank) {
    sources.push_back(data + static_cast<std::size_t>(rank) * bytes);
  }
  const std::array<std::byte*, 1> destinations{static_cast<std::byte*>(destination.data_ptr())};
  comm::reduce(sources, destinations, static_cast<std::size_t>(destination.numel()), call.type,
               call.op);
}

}  // namespace lockstep::c10d_adapter
