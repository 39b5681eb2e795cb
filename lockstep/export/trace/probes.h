// Inputs like the example's, but with other values or another batch size.
#pragma once

#include <lockstep/export/trace/recording.h>

namespace lockstep::onnx {

/// Inputs with values that should make branches on data go the other way, as a list of proposals:
/// forward() may refuse the first ones, and the last ones differ least from the example. In the
/// first proposal with `number` 0, floating-point values are negated and made four times as large,
/// whole numbers become smaller by one, and booleans are inverted; with 1, floating-point values
/// are redrawn at random at about that scale, whole numbers become larger by one, and every second
/// boolean is inverted. With 0, the other proposals invert only the remaining half of the booleans,
/// because a mask may have to leave something visible. Each proposal changes even an input of one
/// element, or of equal elements, except the last, which changes the order only. Does not use
/// LibTorch's generator.
std::vector<Tensors> with_other_values(const Tensors& inputs, int number);

/// Repeats the rows of each input along its batch dimension until there are `batch` rows.
Tensors with_batch(const Tensors& inputs, const std::vector<std::int64_t>& batch_dimensions,
                   std::int64_t batch);

}  // namespace lockstep::onnx
