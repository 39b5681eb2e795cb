// The inner loops of the native augmentation: a row of bytes becomes a row of normalised floats.
#pragma once

#include <cstdint>

namespace lockstep {

/// Row loops for one instruction set. All sets give the same bits: one multiplication and one
/// addition per pixel, each rounded.
struct RowFunctions {
  /// output[i] = source[i] * scale + bias for i in [0, count).
  void (*forward)(const std::uint8_t* source, std::int64_t count, float scale, float bias,
                  float* output);
  /// output[i] = source[-i] * scale + bias: a mirrored row.
  void (*backward)(const std::uint8_t* source, std::int64_t count, float scale, float bias,
                   float* output);
  /// output[3 * i + c] = source[c * plane + i] * scale[c] + bias[c] for three channels,
  /// interleaved.
  void (*forward3)(const std::uint8_t* source, std::int64_t plane, std::int64_t count,
                   const float* scale, const float* bias, float* output);
  /// The same, mirrored: source[c * plane - i].
  void (*backward3)(const std::uint8_t* source, std::int64_t plane, std::int64_t count,
                    const float* scale, const float* bias, float* output);
};

/// The loops for the best instruction set of this processor.
const RowFunctions& row_functions();

}  // namespace lockstep
