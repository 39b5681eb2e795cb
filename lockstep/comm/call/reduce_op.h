// How a reduction combines the values of the ranks.
#pragma once

#include <cstdint>

#include <lockstep/core/export.h>

namespace lockstep {

/// A value type with constants for the usual operations: `ReduceOp::kSum`. Names and meaning are
/// those of torch.distributed. On bool, sum and max are "or", product and min are "and", as in
/// PyTorch's arithmetic.
struct LOCKSTEP_API ReduceOp {
  enum class Kind : std::uint8_t {
    kSum,
    kAverage,  ///< the sum divided by the number of ranks; floating-point types only
    kProduct,
    kMin,
    kMax,         ///< kMin and kMax propagate NaN, like torch.minimum and torch.maximum
    kBitwiseAnd,  ///< this and the next two: integers and bool only
    kBitwiseOr,
    kBitwiseXor,
    kPreMultipliedSum,  ///< sum of the values times `factor`; floating-point types only
  };

  Kind kind = Kind::kSum;
  double factor = 1;  ///< for kPreMultipliedSum; equal on all ranks

  static const ReduceOp kSum, kAverage, kProduct, kMin, kMax, kBitwiseAnd, kBitwiseOr, kBitwiseXor;
  static constexpr ReduceOp premultiplied_sum(double factor) {
    return {Kind::kPreMultipliedSum, factor};
  }

  friend bool operator==(const ReduceOp&, const ReduceOp&) = default;
};

inline constexpr ReduceOp ReduceOp::kSum{Kind::kSum};
inline constexpr ReduceOp ReduceOp::kAverage{Kind::kAverage};
inline constexpr ReduceOp ReduceOp::kProduct{Kind::kProduct};
inline constexpr ReduceOp ReduceOp::kMin{Kind::kMin};
inline constexpr ReduceOp ReduceOp::kMax{Kind::kMax};
inline constexpr ReduceOp ReduceOp::kBitwiseAnd{Kind::kBitwiseAnd};
inline constexpr ReduceOp ReduceOp::kBitwiseOr{Kind::kBitwiseOr};
inline constexpr ReduceOp ReduceOp::kBitwiseXor{Kind::kBitwiseXor};

/// Returns "sum", "average", "product", "min", "max", "bitwise and", ... or "premultiplied sum".
LOCKSTEP_API const char* reduce_op_name(ReduceOp::Kind kind);

}  // namespace lockstep
