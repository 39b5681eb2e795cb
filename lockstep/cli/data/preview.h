// What a net sees of a data set: images as a Loader gives them, on a contact sheet.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include <lockstep/data/augment/augment.h>
#include <lockstep/data/datasets/dataset.h>
#include <lockstep/data/loader/loader_options.h>
#include <lockstep/report/contact_sheet.h>

namespace lockstep {

struct PreviewOptions {
  std::int64_t images = 8;            ///< rows, at most as many as the data set has images
  std::int64_t versions = 7;          ///< of each image, from as many epochs
  std::optional<std::int64_t> scale;  ///< side of a pixel; none: cells of 96 pixels or more
  std::uint64_t seed = 0;             ///< of the choice of images, and the loader's
  std::int64_t epoch = 0;             ///< the first
  LoaderEngineKind engine = LoaderEngineKind::kNative;
  /// kSkip: images that cannot be decoded are replaced by others.
  OnCorruptImage on_corrupt_image = OnCorruptImage::kStop;
  BatchMix mix;  ///< the images of the sheet are one batch, each row's partner the row above
};

/// An image as it is trained with in one epoch.
struct PreviewVersion {
  std::int64_t epoch = 0;
  /// Classes with their shares of the label, the largest first; without a mix one with 1.
  std::vector<std::pair<std::int64_t, double>> shares;
};

struct PreviewRow {
  std::int64_t index = 0;  ///< in the data set
  std::int64_t label = 0;
  std::vector<PreviewVersion> versions;
};

struct Preview {
  ContactSheet sheet;
  std::vector<PreviewRow> rows;
  std::vector<CorruptImage> skipped;  ///< with OnCorruptImage::kSkip, of those that were tried
};

/// `count` images of `dataset`, or all where it has fewer: random ones, such that no class is shown
/// a second time before each that the data set has was shown once, and so on; each time in the
/// order of the classes. With `usable` only images for which it returns true; it is asked about as
/// few as possible.
std::vector<std::int64_t> choose_preview_images(
    const ImageDataset& dataset, std::int64_t count, std::uint64_t seed,
    const std::function<bool(std::int64_t index)>& usable = {});

/// One row an image: first itself, shrunk or enlarged by a whole factor to fit, then what a Loader
/// of these options makes of it in each epoch, with Normalize undone. ConfigError when the engine
/// cannot execute the list, the sheet would be too large, or images have neither 1 nor 3 channels;
/// DataError when an image, or with kSkip every image, cannot be read.
Preview make_preview(const ImageDataset& dataset, const Augmentation& augmentation,
                     const PreviewOptions& options);

}  // namespace lockstep
