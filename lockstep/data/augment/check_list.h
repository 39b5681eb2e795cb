// Whether a list of operators can be executed, and how large its images become.
#pragma once

#include <lockstep/data/augment.h>
#include <lockstep/data/image.h>

namespace lockstep {

/// The shape of the output for images of shape `input`, whose height and width are 0 where each image has
/// its own. ConfigError, naming the operator, for a list that cannot be: see AugmentationPlan.
ImageShape check_list(const Augmentation& operators, const ImageShape& input);

/// ConfigError, as check_list() throws it, when the crop is larger than an image.
void check_fits(const RandomCrop& crop, std::int64_t height, std::int64_t width);

}  // namespace lockstep
