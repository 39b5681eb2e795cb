// The random choices of each operator, apart from what they do to pixels, so that all engines and tests
// share them. They draw from the stream in a fixed order: a row before a column, an area before a ratio.
#pragma once

#include <cstdint>
#include <optional>

#include <lockstep/core/philox.h>
#include <lockstep/data/augment.h>
#include <lockstep/data/image.h>

namespace lockstep {

/// torchvision's RandomCrop.get_params.
Box choose(const RandomCrop& crop, std::int64_t height, std::int64_t width, PhiloxStream& random);
/// torchvision's RandomResizedCrop.get_params.
Box choose(const RandomResizedCrop& crop, std::int64_t height, std::int64_t width, PhiloxStream& random);
/// torchvision's RandomErasing.get_params, preceded by the draw for its probability.
std::optional<Box> choose(const RandomErasing& erasing, std::int64_t height, std::int64_t width,
                          PhiloxStream& random);
/// Clipped to the image.
Box choose(const Cutout& cutout, std::int64_t height, std::int64_t width, PhiloxStream& random);
bool choose(const RandomHorizontalFlip& flip, PhiloxStream& random);
bool choose(const RandomVerticalFlip& flip, PhiloxStream& random);

/// Where torchvision's center_crop cuts an image of at least that size: the middle, halves to even.
Box center_box(ImageSize size, std::int64_t height, std::int64_t width);
/// What an image becomes; torchvision truncates the longer side.
ImageSize resized(const Resize& resize, std::int64_t height, std::int64_t width);

}  // namespace lockstep
