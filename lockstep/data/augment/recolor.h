// The colour operators of PIL on planes of bytes, changed in place, with PIL's rounding.
#pragma once

#include <cstdint>
#include <vector>

#include <lockstep/data/images/image.h>

namespace lockstep {

/// Planes are whole blocks of this number of bytes, so that loops over them need no remainder; the
/// bytes behind the last pixel mean nothing.
inline constexpr std::int64_t kPlaneBlock = 64;

/// An image's own copy of its pixels: channel c has them at bytes + c * stride, row by row.
struct ColorPlanes {
  std::uint8_t* bytes = nullptr;
  std::int64_t channels = 0;
  std::int64_t pixels = 0;
  std::int64_t stride = 0;
};

/// `source` in `memory`, which must not be the source's own.
ColorPlanes copy_planes(const ImageView& source, std::vector<std::uint8_t>& memory);

/// from + factor * (to - from) in float32, rounded towards 0 and cut to 0 to 255: PIL's
/// Image.blend.
std::uint8_t blend(std::uint8_t from, std::uint8_t to, float factor);

/// Every byte becomes blend(from, byte, factor): brightness from 0, contrast from the mean.
void blend_planes(const ColorPlanes& planes, std::uint8_t from, float factor);

/// The sum over all pixels of their grey: 0.299 red + 0.587 green + 0.114 blue in fixed point of 16
/// bits, rounded; of one channel the byte itself. For one or three channels, as the following.
std::int64_t sum_grays(const ColorPlanes& planes);

/// The first plane becomes the grey of each pixel.
void make_gray(const ColorPlanes& planes);

/// Every byte becomes blend(grey of the pixel, byte, factor). Only of three channels, as the
/// following.
void adjust_saturation(const ColorPlanes& planes, float factor);

/// Goes to HSV, adds `shift` to the hue's byte without carry, and comes back.
void adjust_hue(const ColorPlanes& planes, int shift);

}  // namespace lockstep
