// Rotation with bilinear interpolation, of pixels that lie so that one load gets two of them.
#pragma once

#include <cstdint>
#include <vector>

#include <lockstep/data/augment/rotate.h>
#include <lockstep/data/images/image.h>

namespace lockstep {

inline constexpr std::int64_t kPairChannels = 4;

/// The pairs of an image of up to kPairChannels channels: for each pixel, and for a frame of one
/// pixel about the image that repeats its edge, the bytes of its channels and then those of its
/// right neighbour. A row has width + 1 pairs, from the frame's left on; there are height + 2 rows.
void make_pairs(const ImageView& source, std::vector<std::uint64_t>& pairs);

/// Writes the planar image that `rotation` makes of an image of `shape`; see Rotator::rotate().
void rotate_pairs(const std::uint64_t* pairs, const ImageShape& shape, const Rotation& rotation,
                  std::uint8_t fill, std::uint8_t* output);

}  // namespace lockstep
