// Makes a packed file from a data set, so that no epoch decodes or resizes again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include <lockstep/core/export.h>
#include <lockstep/data/augment/augment.h>
#include <lockstep/data/datasets/dataset.h>
#include <lockstep/data/images/corrupt_image.h>

namespace lockstep {

struct LOCKSTEP_API PackImagesOptions {
  /// Keep JPEG and PNG files as they are, for a small pack that is decoded at every read. Packing
  /// reads only their headers; damage after the header is found only when the image is decoded.
  bool keep_files = false;
  /// Resizes the images as Resize does, to the same bytes as torchvision. They are first decoded at
  /// full size.
  std::optional<Resize> resize{};
  int threads = 0;  ///< Decoding threads besides the caller, which writes; 0: the caller does all.
  /// kSkip: every image is decoded once before any is packed, and images that cannot be decoded are
  /// left out. This doubles the time. Also applies with keep_files.
  OnCorruptImage on_corrupt_image = OnCorruptImage::kStop;
  /// Called by the caller's thread after each image, with the number of images done. An exception
  /// from it ends the packing.
  std::function<void(std::int64_t done)> progress{};
  /// With kSkip: like `progress`, for the decoding pass before the packing.
  std::function<void(std::int64_t done)> check_progress{};
};

struct LOCKSTEP_API PackedSize {
  std::int64_t images = 0;
  std::uint64_t bytes = 0;              ///< size of the file
  std::vector<CorruptImage> skipped{};  ///< with kSkip; indices of the data set
};

/// Writes all images of `dataset` to `path`, in order, with labels and names of classes. The bytes
/// do not depend on the number of threads. Takes memory for a few images per thread. The file
/// appears when it is complete; an error leaves no file behind.
///
/// Throws a ConfigError if an option is out of range, or if keep_files is set together with a
/// resize or for a data set that does not consist of files. Throws a DataError that names the file
/// if an image cannot be read (with kSkip: if none can), an image is larger than 1 GiB or 65,535
/// pixels a side, or the pack cannot be written (no space left, permission denied).
LOCKSTEP_API PackedSize pack_images(const ImageDataset& dataset, const std::filesystem::path& path,
                                    const PackImagesOptions& options = {});

}  // namespace lockstep
