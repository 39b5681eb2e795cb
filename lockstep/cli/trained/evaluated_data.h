// The images, or other samples, on which a trained network is evaluated.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include <lockstep/cli/trained/trained_model.h>
#include <lockstep/data/datasets/batch_dataset.h>
#include <lockstep/data/datasets/dataset.h>
#include <lockstep/formats/image.h>

namespace lockstep::cli {

/// The options as given by the user.
struct EvaluatedDataArguments {
  std::optional<std::string> data;
  std::optional<std::string> split;
  std::int64_t max_image_pixels = kMaxImagePixels;
  bool exif_transpose = false;
};

/// Adds --data, --split, --max-image-pixels and --exif-transpose to `command`; `to` must outlive
/// the parsing.
void add_evaluated_data_options(CLI::App& command, EvaluatedDataArguments& to);

/// Throws ConfigError, which begins with `command`, for a value that no network allows and for
/// a --data PATH that does not exist.
void check_evaluated_data(const std::string& command, const EvaluatedDataArguments& arguments);

struct EvaluatedData {
  ImageDataset images;       ///< without images if there are `tensors`
  std::string description;   ///< in words, without the part
  std::string split;         ///< "validation", "train" or "all"
  bool is_shuffled = false;  ///< whether the images are in the order of a split at random
  std::shared_ptr<const BatchDataset<Tensors>> tensors{};  ///< for Recipe::make_tensor_task
};

/// Loads the part of the run's data set, or of --data, that the options name: by default the
/// validation part or, for a folder that has no parts, all images. Downloads show a bar, and notes
/// go to standard error.
///
/// The options must have passed check_evaluated_data(). Throws ConfigError, which begins with
/// `command`, for options that do not fit the network, and the errors of Recipe::load_data. Throws
/// DataError if the classes are not those of the model, or if the run's split at random cannot be
/// repeated because the names of the images have changed.
EvaluatedData load_evaluated_data(const std::string& command,
                                  const EvaluatedDataArguments& arguments,
                                  const TrainedModel& model);

}  // namespace lockstep::cli
