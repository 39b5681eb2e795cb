// Converts image tensors to pictures for display.
#pragma once

#include <torch/types.h>

#include <lockstep/data/augment/augment.h>
#include <lockstep/report/canvas.h>

namespace lockstep::recipes {

/// A picture of `image`, float [channels, height, width] with 1 or 3 channels on any device, whose
/// values come from `normalize`. They are converted back to bytes, rounded, and clamped to 0 and
/// 255.
report::Picture picture_of(const torch::Tensor& image, const Normalize& normalize);

}  // namespace lockstep::recipes
