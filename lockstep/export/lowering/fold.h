// Constant folding: computes operations on constants at export time.
#pragma once

#include <lockstep/export/lowering/recorded_operation.h>

namespace lockstep::onnx {

/// Computes `node` with LibTorch if all its arguments are known and none follows the batch, and
/// adds the results to the operands. Otherwise, and for operations that draw random numbers,
/// returns false and changes nothing. Results keep the parameter's name: "fc.weight.t".
bool fold(const torch::jit::Node& node, const Trace& trace, Operands& operands);

}  // namespace lockstep::onnx
