// Memory for one batch of images, according to the LoaderOptions.
#pragma once

#include <cstdint>
#include <vector>

#include <lockstep/data/augment/write_image.h>
#include <lockstep/data/images/image.h>
#include <lockstep/data/loader/batch.h>
#include <lockstep/data/loader/loader_options.h>

namespace lockstep::data {

/// options.batch_size images of `shape` and their labels, in host memory. The memory is pinned if
/// options.device is not a CPU.
Batch make_image_buffer(const LoaderOptions& options, const ImageShape& shape);

/// The strides of a batch of such images, in the layout of the options.
std::vector<std::int64_t> image_strides(const LoaderOptions& options, const ImageShape& shape);

/// The first `count` images of a buffer.
Batch first_images(const Batch& buffer, std::int64_t count);

/// The PixelType that equals `dtype`. Throws a ConfigError for a dtype that no engine writes.
PixelType pixel_type(torch::ScalarType dtype);

}  // namespace lockstep::data
