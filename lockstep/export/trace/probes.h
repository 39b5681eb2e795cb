// Inputs like the example's, with other values or another batch size.
#pragma once

#include <lockstep/export/trace/recording.h>

namespace lockstep::onnx {

/// Values that take a branch on data the other way: `number` 0 negates floating-point values and
/// makes them four times as large, 1 draws them anew at that scale; whole numbers and truth values
/// are the example's in another order, since they may be indices. Does not use LibTorch's
/// generator.
Tensors with_other_values(const Tensors& inputs, int number);

/// The rows of each input along its batch dimension, repeated until there are `batch`.
Tensors with_batch(const Tensors& inputs, const std::vector<std::int64_t>& batch_dimensions,
                   std::int64_t batch);

}  // namespace lockstep::onnx
