// Rotation with bilinear interpolation. Pixels are stored in pairs, so that one load gets two.
#pragma once

#include <cstdint>
#include <vector>

#include <lockstep/data/augment/rotate.h>
#include <lockstep/data/images/image.h>

namespace lockstep::data {

inline constexpr std::int64_t kPairChannels = 4;

/// Builds the pairs of an image of up to kPairChannels channels. Each pair holds the bytes of a
/// pixel's channels and then the bytes of its right neighbour. A frame of one pixel around the
/// image repeats its edge. A row has width + 1 pairs, beginning at the left frame; there are height
/// + 2 rows.
void make_pairs(const ImageView& source, std::vector<std::uint64_t>& pairs);

/// Writes the planar image that results from applying `rotation` to an image of `shape`; see
/// Rotator::rotate().
void rotate_pairs(const std::uint64_t* pairs, const ImageShape& shape, const Rotation& rotation,
                  std::uint8_t fill, std::uint8_t* output);

}  // namespace lockstep::data
