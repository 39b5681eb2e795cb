// Checks whether a list of operators can be executed, for a whole data set and for each image, and
// computes the output sizes.
#pragma once

#include <cstdint>
#include <string_view>

#include <lockstep/data/augment/augment.h>
#include <lockstep/data/images/image.h>

namespace lockstep::data {

/// Returns the shape of the output for images of shape `input`. A height and width of 0 mean that
/// each image has its own size. Throws a ConfigError that names the operator if the list is
/// invalid: see AugmentationPlan.
ImageShape check_augmentation(const Augmentation& operators, const ImageShape& input);

/// An image in messages.
struct NamedImage {
  std::uint64_t sample = 0;  ///< its index in the data set
  std::string_view file{};   ///< the name of its file; empty if there is none
};

/// Throws the ConfigError of check_augmentation(), which names the image's file, if the crop is
/// larger than an image of this size.
void check_fits(const RandomCrop& crop, std::int64_t height, std::int64_t width,
                const NamedImage& image = {});

/// Throws a DataError if image number `sample` does not have the shape that its data set declares:
/// memory was allocated for the declared shape.
void check_declared(const ImageShape& image, const ImageShape& declared, std::uint64_t sample);

/// Throws a DataError, which names `image`, if `operation` (such as "resizing") would make an image
/// larger than any list needs: 65,536 pixels a side and 256 MiB. Resizing can make a long, narrow
/// image huge. Call this before allocating the memory.
void check_made(const char* operation, const ImageShape& from, const ImageShape& made,
                const NamedImage& image);

}  // namespace lockstep::data
