#include <lockstep/comm/algorithms/choice.h>

#include <algorithm>

namespace lockstep {
namespace {

bool is_bitwise(ReduceOp op) {
  return op.kind == ReduceOp::Kind::kBitwiseAnd || op.kind == ReduceOp::Kind::kBitwiseOr ||
         op.kind == ReduceOp::Kind::kBitwiseXor;
}

// Gloo through LibTorch knows no 16-bit integers and treats bool as bytes to add; it rounds 16-bit
// floats after every addition, and its minimum and maximum overlook NaN.
bool gloo_reduces(DataType type, ReduceOp op) {
  if (type == DataType::kInt16 || type == DataType::kBool || type == DataType::kFloat16 ||
      type == DataType::kBFloat16) {
    return false;
  }
  if (op.kind == ReduceOp::Kind::kPreMultipliedSum) return false;
  const bool picks = op.kind == ReduceOp::Kind::kMin || op.kind == ReduceOp::Kind::kMax;
  return !(picks && is_floating_point(type));
}

// Among ours, for a transport whose latency is tens of microseconds.
Algorithm choose_ours(int ranks, std::size_t bytes) {
  if (ranks == 2 && bytes <= (std::size_t{64} << 10)) return Algorithm::kAllToAll;
  return Algorithm::kHalvingDoubling;
}

}  // namespace

bool has_native_all_reduce(const std::string& backend, DataType type, ReduceOp op) {
  if (backend == "gloo") return gloo_reduces(type, op);
  if (backend == "nccl") return type != DataType::kInt16 && !is_bitwise(op);
  return true;
}

Algorithm choose_algorithm(const std::string& backend, int ranks, std::size_t bytes, DataType type,
                           ReduceOp op) {
  if (!has_native_all_reduce(backend, type, op)) return choose_ours(ranks, bytes);
  return Algorithm::kNative;
}

std::size_t default_chunk(Algorithm algorithm, int size, std::size_t element_bytes) {
  const auto peers = static_cast<std::size_t>(std::max(size - 1, 1));
  switch (algorithm) {
    // Arrivals of one chunk from all peers: 64 MiB of memory, and no chunk so short that latency
    // counts.
    case Algorithm::kAllToAll:
      return std::max<std::size_t>((std::size_t{64} << 20) / peers, std::size_t{1} << 20) /
             element_bytes;
    case Algorithm::kTree:
      return (std::size_t{256} << 10) / element_bytes;
    default:
      return 0;
  }
}

}  // namespace lockstep
