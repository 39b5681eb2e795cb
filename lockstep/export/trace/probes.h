// Inputs like the example's, but with other values or another batch size.
#pragma once

#include <lockstep/export/trace/recording.h>

namespace lockstep::onnx {

/// Inputs with values that should make branches on data go the other way. With `number` 0,
/// floating-point values are negated and made four times as large; with 1, they are redrawn at
/// random at about that scale. Integers and booleans are those of the example in another order,
/// since they may be indices. Does not use LibTorch's generator.
Tensors with_other_values(const Tensors& inputs, int number);

/// Repeats the rows of each input along its batch dimension until there are `batch` rows.
Tensors with_batch(const Tensors& inputs, const std::vector<std::int64_t>& batch_dimensions,
                   std::int64_t batch);

}  // namespace lockstep::onnx
