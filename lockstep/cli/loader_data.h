// The data of commands about loading: the training part of a known data set, a folder of images, or
// a packed file, with the operators applied to its images.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <lockstep/core/error.h>
#include <lockstep/data/augment/augment.h>
#include <lockstep/data/datasets/dataset.h>
#include <lockstep/data/loader/loader_options.h>

namespace lockstep::cli {

struct LoaderDataChoice {
  std::string source;  ///< a known data set, a folder with a subfolder for each class, or a pack
  std::string source_option;  ///< the option's name, for messages
  /// A name of operator_choices(); "random-resized-crop" resizes to `size` pixels. Absent: the
  /// recipe's operators if the data has a recipe, crop-flip for any other known data set,
  /// random-resized-crop for other data.
  std::optional<std::string> operators;
  int size = 128;
  std::optional<std::string> directory;                            ///< --data; for a known data set
  std::int64_t max_image_pixels = kMaxImagePixels;                 ///< limit of each image file
  ImageReader::Decoding decoding = ImageReader::Decoding::kExact;  ///< how image files are decoded
  bool exif_transpose = false;   ///< for image files: ImageFolderOptions::exif_transpose
  bool keep_unreadable = false;  ///< for a folder: ImageFolderOptions::keep_unreadable

  bool operator==(const LoaderDataChoice&) const = default;
};

struct LoaderData {
  ImageDataset dataset;
  Augmentation augmentation;
  std::string operators;  ///< the chosen operators, or the default
};

/// Throws ConfigError, beginning with `command`, if scaled decoding is requested of an engine that
/// always decodes at full size.
inline void check_decoding(const std::string& command, ImageReader::Decoding decoding,
                           LoaderEngineKind engine) {
  if (decoding == ImageReader::Decoding::kExact || engine == LoaderEngineKind::kNative) return;
  throw ConfigError(command + ": --decoding scaled needs --loader native, got " +
                    to_string(engine));
}

/// Downloads the data if necessary, with a bar on standard error. Throws ConfigError, beginning
/// with `command`, if a word of the choice is unknown or does not fit the data, and DataError if
/// the data cannot be read.
LoaderData open_loader_data(const std::string& command, const LoaderDataChoice& choice);

}  // namespace lockstep::cli
