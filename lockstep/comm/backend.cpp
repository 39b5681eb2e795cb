#include <lockstep/comm/backend.h>

#include <lockstep/core/error.h>

namespace lockstep {

void check_average(const torch::Tensor& tensor, ReduceOp op) {
  if (op == ReduceOp::kAverage && !tensor.is_floating_point()) {
    throw ConfigError(lockstep::str("all_reduce: the average of ", tensor.scalar_type(),
                                    " is not defined; sum and divide yourself"));
  }
}

}  // namespace lockstep
