// The native augmentation's single pass over the pixels: reads bytes from any positions in any
// order and writes normalised numbers to the batch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <lockstep/data/augment/axis.h>
#include <lockstep/data/images/image.h>

namespace lockstep::data {

/// Order of an output image in memory: CHW, or HWC (channels last).
enum class Layout { kPlanar, kChannelsLast };

/// The type of an output number. Values are computed in float32 and rounded once, to nearest even.
enum class PixelType { kFloat32, kBFloat16, kFloat16 };

inline std::int64_t bytes_of(PixelType type) { return type == PixelType::kFloat32 ? 4 : 2; }

/// output = byte * scale + bias, each operation rounded: the same bits on every instruction set.
struct ChannelScale {
  float scale = 1;
  float bias = 0;
};

/// An area of one value: rows [top, top + height) and columns [left, left + width) of the output.
struct Erasure {
  std::int64_t top = 0;
  std::int64_t left = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  float value = 0;
  bool is_byte = false;  ///< `value` is 0 to 255, scaled like a pixel; else an output value
};

struct ImageWrite {
  ImageView source;
  Axis rows;
  Axis columns;
  std::uint8_t fill = 0;  ///< The padding's value.
  std::span<const ChannelScale> channels;
  std::span<const Erasure> erasures;  ///< In order; each lies inside the output.
  Layout layout = Layout::kPlanar;
  PixelType type = PixelType::kFloat32;
  void* output = nullptr;  ///< channels x rows.size x columns.size numbers
};

/// Writes every number of the output once, and erased numbers twice.
void write_image(const ImageWrite& write);

}  // namespace lockstep::data
