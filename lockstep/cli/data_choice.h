// Which data set a command is to work on: one that is known by its name, a folder of images, or a
// packed file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <lockstep/data/datasets/dataset.h>

namespace CLI {
class App;
}

namespace lockstep {

struct DataChoice {
  std::string source;                    ///< mnist, cifar10, cifar100, a folder, or a pack
  std::optional<std::string> split;      ///< train (default) or test; of a known data set
  std::optional<std::string> directory;  ///< --data; of a known data set
  std::int64_t max_image_pixels = kMaxImagePixels;  ///< of image files
};

/// SOURCE, --split, --data and --max-image-pixels. `to` must outlive the parsing.
void add_data_choice_options(CLI::App& command, DataChoice& to);

/// Finds the data set, or downloads it with a bar on standard error. Its first words are
/// `command` in the ConfigError for options that do not go together and a source that is none;
/// throws what the loaders throw.
ImageDataset open_data(const std::string& command, const DataChoice& choice);

}  // namespace lockstep
