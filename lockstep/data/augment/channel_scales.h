// Normalize as each engine applies it: one multiplication and one addition per channel.
#pragma once

#include <vector>

#include <lockstep/data/augment/augment.h>
#include <lockstep/data/augment/write_image.h>

namespace lockstep::data {

/// The scales of the list's Normalize: byte * scale + bias = (byte / 255 - mean) / std.
inline std::vector<ChannelScale> channel_scales(const Augmentation& operators) {
  std::vector<ChannelScale> scales;
  for (const Operator& op : operators) {
    const auto* normalize = std::get_if<Normalize>(&op);
    if (normalize == nullptr) continue;
    for (std::size_t c = 0; c < normalize->mean.size(); ++c) {
      scales.push_back({static_cast<float>(1 / (255 * normalize->std[c])),
                        static_cast<float>(-normalize->mean[c] / normalize->std[c])});
    }
  }
  return scales;
}

}  // namespace lockstep::data
