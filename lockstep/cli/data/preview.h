// A contact sheet of a data set's images, as a Loader passes them to a network, and the options of
// `lockstep data preview`, which draws it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/cli/loader_data.h>
#include <lockstep/data/augment/augment.h>
#include <lockstep/data/datasets/dataset.h>
#include <lockstep/data/loader/loader_options.h>
#include <lockstep/report/contact_sheet.h>

namespace CLI {
class App;
}

namespace lockstep::cli {

struct PreviewOptions {
  std::int64_t images = 8;            ///< rows, at most as many as the data set has images
  std::int64_t versions = 7;          ///< columns for each image, one per epoch
  std::optional<std::int64_t> scale;  ///< side of a pixel; absent: cells of at least 96 pixels
  std::uint64_t seed = 0;             ///< for the choice of images, and for the loader
  std::int64_t epoch = 0;             ///< the first epoch
  LoaderEngineKind engine = LoaderEngineKind::kNative;
  /// With kSkip, images that cannot be decoded are replaced by others.
  OnCorruptImage on_corrupt_image = OnCorruptImage::kStop;
  BatchMix mix;  ///< the sheet's images form one batch; each row is mixed with the one above
};

/// The options as given by the user. Those that are words here are not yet in `choice` and
/// `options`.
struct PreviewArguments {
  LoaderDataChoice choice{.source_option = "SOURCE"};
  PreviewOptions options;
  std::string engine = "native";
  std::string mix = "none";
  std::string on_corrupt_image = "stop";
  std::string decoding = "exact";
  std::string out;
  std::string json;
};

/// Adds SOURCE and all options to `command`; parsing writes them into `to`, which must outlive it.
void add_preview_options(CLI::App& command, PreviewArguments& to);

/// An image as used for training in one epoch.
struct PreviewVersion {
  std::int64_t epoch = 0;
  /// Classes with their shares of the label, largest first; without a mix, one class with share 1.
  std::vector<std::pair<std::int64_t, double>> shares;
};

struct PreviewRow {
  std::int64_t index = 0;  ///< in the data set
  std::int64_t label = 0;
  std::vector<PreviewVersion> versions;
};

struct Preview {
  report::ContactSheet sheet;
  std::vector<PreviewRow> rows;
  std::vector<CorruptImage> skipped;  ///< images that kSkip left out, of those tried
};

/// `count` random images of `dataset`, or all if it has fewer. They are drawn in rounds, in the
/// order of the classes: each class appears once before any appears a second time, and so on. If
/// `usable` is given, only images for which it returns true are chosen; it is called as rarely as
/// possible.
std::vector<std::int64_t> choose_preview_images(
    const ImageDataset& dataset, std::int64_t count, std::uint64_t seed,
    const std::function<bool(std::int64_t index)>& usable = {});

/// One row per image: first the image itself, reduced or enlarged by a whole factor to fit, then
/// the output of a Loader with these options in each epoch, with Normalize undone. Throws
/// ConfigError if the engine cannot execute the augmentation, if the sheet would be too large, or
/// if images have neither 1 nor 3 channels. Throws DataError if an image, or with kSkip every
/// image, cannot be read.
Preview make_preview(const ImageDataset& dataset, const Augmentation& augmentation,
                     const PreviewOptions& options);

}  // namespace lockstep::cli
