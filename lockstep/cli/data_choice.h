// The choice of a command's data set: a known one by name, a folder of images, or a packed file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <lockstep/core/error.h>
#include <lockstep/data/datasets/dataset.h>

namespace CLI {
class App;
}

namespace lockstep::cli {

struct DataChoice {
  std::string source;                    ///< one of known_data_names(), a folder, or a pack
  std::optional<std::string> split;      ///< train (default) or test; for a known data set
  std::optional<std::string> directory;  ///< --data; for a known data set
  std::int64_t max_image_pixels = kMaxImagePixels;  ///< limit of each image file
  bool exif_transpose = false;   ///< for image files: ImageFolderOptions::exif_transpose
  bool keep_unreadable = false;  ///< for a folder: ImageFolderOptions::keep_unreadable

  bool operator==(const DataChoice&) const = default;
};

/// Adds SOURCE, --split, --data and --max-image-pixels to `command`. `to` must outlive the parsing.
void add_data_choice_options(CLI::App& command, DataChoice& to);

/// The error about a source that is neither a known data set nor a folder or file. `option` is its
/// name on the command line.
ConfigError unknown_source(const std::string& command, const std::string& option,
                           const std::string& source);

/// The error about --exif-transpose with a known data set or a recipe. `option` is as in
/// unknown_source().
ConfigError exif_transpose_without_files(const std::string& command, const std::string& option,
                                         const std::string& source);

/// Finds the data set, or downloads it with a bar on standard error. Throws ConfigError, beginning
/// with `command`, for contradictory options and for an unknown source. Also throws the errors of
/// the loaders.
ImageDataset open_data(const std::string& command, const DataChoice& choice);

}  // namespace lockstep::cli
