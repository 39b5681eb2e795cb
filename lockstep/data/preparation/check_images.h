// Checks whether every image of a data set can be decoded, before a run.
//
// During training only the part of a file that a random crop shows is decoded, so a damaged file
// may pass in one epoch and stop the run in another.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <lockstep/core/export.h>
#include <lockstep/data/datasets/dataset.h>
#include <lockstep/data/images/corrupt_image.h>

namespace lockstep {

struct LOCKSTEP_API CheckImagesOptions {
  int threads = 0;  ///< Threads that decode; 0: the caller decodes all images.
  /// Called by the caller's thread after each image, with the number of images done. An exception
  /// from it ends the check.
  std::function<void(std::int64_t done)> progress{};
};

struct LOCKSTEP_API ImagesCheck {
  std::int64_t images = 0;
  std::vector<CorruptImage> corrupt{};  ///< In the order of the data set.
  /// Images that can be decoded, but not used everywhere: files that other programs may reject, see
  /// ImageReader::remark(), and images so long and narrow that a Resize of their shorter side to
  /// 256 pixels, as evaluations often begin with, throws a DataError.
  std::vector<CorruptImage> odd{};

  /// The indices of all images that are not in `corrupt`, for subset().
  std::vector<std::int64_t> sound() const;
};

/// Decodes every image of `dataset` once and completely. In a packed data set, checksums are
/// verified as the options passed to load_packed_images() say. An image is corrupt if reading it
/// throws a DataError; any other exception ends the check. Throws a ConfigError for invalid
/// options.
LOCKSTEP_API ImagesCheck check_images(const ImageDataset& dataset,
                                      const CheckImagesOptions& options = {});

}  // namespace lockstep
