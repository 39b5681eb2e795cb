#include "reduce_op.h"

#include <c10/util/Exception.h>

namespace lockstep_c10d {
namespace {

double premultiplier(const c10d::ReduceOp& op) {
  const auto* supplement = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  if (supplement == nullptr) C10_THROW_ERROR(ValueError, "PREMUL_SUM comes without its factor");
  return supplement->tensor_factor.defined() ? supplement->tensor_factor.item<double>()
                                             : supplement->double_factor;
}

}  // namespace

lockstep::ReduceOp reduce_op(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return lockstep::ReduceOp::kSum;
    case c10d::ReduceOp::AVG:
      return lockstep::ReduceOp::kAverage;
    case c10d::ReduceOp::PRODUCT:
      return lockstep::ReduceOp::kProduct;
    case c10d::ReduceOp::MIN:
      return lockstep::ReduceOp::kMin;
    case c10d::ReduceOp::MAX:
      return lockstep::ReduceOp::kMax;
    case c10d::ReduceOp::BAND:
      return lockstep::ReduceOp::kBitwiseAnd;
    case c10d::ReduceOp::BOR:
      return lockstep::ReduceOp::kBitwiseOr;
    case c10d::ReduceOp::BXOR:
      return lockstep::ReduceOp::kBitwiseXor;
    case c10d::ReduceOp::PREMUL_SUM:
      return lockstep::ReduceOp::premultiplied_sum(premultiplier(op));
    case c10d::ReduceOp::UNUSED:
      break;
  }
  C10_THROW_ERROR(ValueError, "an unknown reduction, expected one of torch.distributed.ReduceOp");
}

}  // namespace lockstep_c10d
