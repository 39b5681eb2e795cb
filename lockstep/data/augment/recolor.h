// The colour operators of PIL on planes of bytes, changed in place, with PIL's rounding.
#pragma once

#include <cstdint>
#include <vector>

#include <lockstep/data/images/image.h>

namespace lockstep::data {

/// The size of a plane is a multiple of this number of bytes, so that loops over planes need no
/// remainder. The bytes after the last pixel are unspecified.
inline constexpr std::int64_t kPlaneBlock = 64;

/// A private copy of an image's pixels: channel c starts at bytes + c * stride, row by row.
struct ColorPlanes {
  std::uint8_t* bytes = nullptr;
  std::int64_t channels = 0;
  std::int64_t pixels = 0;
  std::int64_t stride = 0;
};

/// Copies `source` into `memory`, which must not be the source's own memory.
ColorPlanes copy_planes(const ImageView& source, std::vector<std::uint8_t>& memory);

/// from + factor * (to - from) in float32, rounded towards 0 and clamped to 0 to 255: PIL's
/// Image.blend.
std::uint8_t blend(std::uint8_t from, std::uint8_t to, float factor);

/// Every byte becomes blend(from, byte, factor). This adjusts the brightness if `from` is 0, and
/// the contrast if it is the mean.
void blend_planes(const ColorPlanes& planes, std::uint8_t from, float factor);

/// The sum of the grey values of all pixels: 0.299 red + 0.587 green + 0.114 blue in 16-bit fixed
/// point, rounded. With one channel, grey is the byte itself. Requires one or three channels.
std::int64_t sum_grays(const ColorPlanes& planes);

/// Replaces the first plane by the grey value of each pixel. Requires one or three channels.
void make_gray(const ColorPlanes& planes);

/// Every byte becomes blend(grey of the pixel, byte, factor). Requires three channels.
void adjust_saturation(const ColorPlanes& planes, float factor);

/// Converts to HSV, adds `shift` to the hue's byte modulo 256, and converts back. Requires three
/// channels.
void adjust_hue(const ColorPlanes& planes, int shift);

}  // namespace lockstep::data
