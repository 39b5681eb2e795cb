// Operations on constants alone, computed when the model is exported.
#pragma once

#include <lockstep/export/lowering/operation.h>

namespace lockstep::onnx {

/// Computes `node` with LibTorch where all its arguments are known and none follows the batch, and
/// puts the results among the operands. False, with nothing done, where they are not, and for
/// operations that draw random numbers. Results keep the parameter's name: "fc.weight.t".
bool fold(const torch::jit::Node& node, const Trace& trace, Operands& operands);

}  // namespace lockstep::onnx
