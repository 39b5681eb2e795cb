// Whether a list of operators can be executed, on all images and on each, and how large they
// become.
#pragma once

#include <cstdint>

#include <lockstep/data/augment/augment.h>
#include <lockstep/data/images/image.h>

namespace lockstep {

/// The shape of the output for images of shape `input`, whose height and width are 0 where each
/// image has its own. ConfigError, naming the operator, for a list that cannot be: see
/// AugmentationPlan.
ImageShape check_list(const Augmentation& operators, const ImageShape& input);

/// ConfigError, as check_list() throws it, when the crop is larger than an image.
void check_fits(const RandomCrop& crop, std::int64_t height, std::int64_t width);

/// DataError when image number `sample` is not of the shape that its data set declares, for which
/// there is memory.
void check_declared(const ImageShape& image, const ImageShape& declared, std::uint64_t sample);

/// DataError when `operation` ("resizing") would make more of an image than any list needs, 65,536
/// pixels a side and 256 MiB: a short image with a long side may become huge. Before there is
/// memory for it.
void check_made(const char* operation, const ImageShape& from, const ImageShape& made);

}  // namespace lockstep
