// Tensors of images as pictures that people look at.
#pragma once

#include <torch/types.h>

#include <lockstep/data/augment/augment.h>
#include <lockstep/report/canvas.h>

namespace lockstep {

/// A picture of `image`, float [channels, height, width] with 1 or 3 channels on any device, whose
/// numbers `normalize` has made. They become bytes again, rounded; what lies beyond 0 and 255 is
/// cut.
Picture picture_of(const torch::Tensor& image, const Normalize& normalize);

}  // namespace lockstep
