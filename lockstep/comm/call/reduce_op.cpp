#include <lockstep/comm/call/reduce_op.h>

namespace lockstep {

const char* reduce_op_name(ReduceOp::Kind kind) {
  switch (kind) {
    case ReduceOp::Kind::kSum:
      return "sum";
    case ReduceOp::Kind::kAverage:
      return "average";
    case ReduceOp::Kind::kProduct:
      return "product";
    case ReduceOp::Kind::kMin:
      return "min";
    case ReduceOp::Kind::kMax:
      return "max";
    case ReduceOp::Kind::kBitwiseAnd:
      return "bitwise and";
    case ReduceOp::Kind::kBitwiseOr:
      return "bitwise or";
    case ReduceOp::Kind::kBitwiseXor:
      return "bitwise xor";
    case ReduceOp::Kind::kPreMultipliedSum:
      return "premultiplied sum";
  }
  return "?";
}

}  // namespace lockstep
