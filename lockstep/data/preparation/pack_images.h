// Makes a packed file of a data set: once, so that no epoch decodes or resizes again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include <lockstep/data/augment/augment.h>
#include <lockstep/data/datasets/dataset.h>
#include <lockstep/data/images/corrupt_image.h>

namespace lockstep {

struct PackImagesOptions {
  /// Keep JPEG and PNG files as they are, for a small pack that is decoded at every read. Their
  /// headers are read, damage behind them is found when they are.
  bool keep_files = false;
  /// Resizes the images as Resize does, to the same bytes as torchvision. They are decoded at full
  /// size first.
  std::optional<Resize> resize{};
  int threads = 0;  ///< That decode beside the caller, who writes; 0: the caller does all.
  /// kSkip: every image is decoded once before any is packed, which takes as long again, and those
  /// that cannot be decoded are left out. Also with keep_files.
  OnCorruptImage on_corrupt_image = OnCorruptImage::kStop;
  /// Called by the caller's thread after each image, with the images done. What it throws ends the
  /// packing.
  std::function<void(std::int64_t done)> progress{};
  std::function<void(std::int64_t done)>
      check_progress{};  ///< With kSkip: the same before, of decoding.
};

struct PackedSize {
  std::int64_t images = 0;
  std::uint64_t bytes = 0;              ///< of the file
  std::vector<CorruptImage> skipped{};  ///< with kSkip; indices of the data set
};

/// Writes all images of `dataset` to `path`, in order, with labels and names of classes; the bytes
/// do not depend on the number of threads. Memory is that of some images a thread. The file appears
/// when it is complete; on any error nothing is left.
///
/// ConfigError when files are to be kept of a data set that has none, or resized. DataError, naming
/// the file, when an image cannot be read (with kSkip: when none can), an image is larger than 1
/// GiB or 65,535 pixels a side, or the pack cannot be written (no space left, permission denied).
PackedSize pack_images(const ImageDataset& dataset, const std::filesystem::path& path,
                       const PackImagesOptions& options = {});

}  // namespace lockstep
