// Whether every image of a data set can be decoded: before a run rather than in some epoch of it.
//
// Only the part of a file that a random crop shows is decoded, so that an epoch may accept a
// damaged file that another epoch stops at.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <lockstep/data/datasets/dataset.h>
#include <lockstep/data/images/corrupt_image.h>

namespace lockstep {

struct CheckImagesOptions {
  int threads = 0;  ///< Threads that decode; 0: the caller does all.
  /// Called by the caller's thread after each image, with the images done. What it throws ends the
  /// check.
  std::function<void(std::int64_t done)> progress{};
};

struct ImagesCheck {
  std::int64_t images = 0;
  std::vector<CorruptImage> corrupt{};  ///< In the order of the data set.
  /// Files that other programs may refuse although their pixels are right, see
  /// ImageReader::remark().
  std::vector<CorruptImage> odd{};

  /// The other images, as subset() takes them.
  std::vector<std::int64_t> sound() const;
};

/// Decodes every image of `dataset` once and wholly; checksums of a pack are verified, too, as its
/// options say. An image is corrupt when reading it throws a DataError; what else is thrown ends
/// the check. ConfigError for options that cannot be.
ImagesCheck check_images(const ImageDataset& dataset, const CheckImagesOptions& options = {});

}  // namespace lockstep
