// Which data set a command is to work on: one that is known by its name, or a folder of images.
#pragma once

#include <optional>
#include <string>

#include <lockstep/data/dataset.h>

namespace lockstep {

struct DataChoice {
  std::string source;                    ///< mnist, cifar10, cifar100, or a folder
  std::optional<std::string> split;      ///< train (default) or test; of a known data set
  std::optional<std::string> directory;  ///< --data; of a known data set
};

/// Finds the data set, or downloads it with a bar on standard error. Its first words are
/// `command` in the ConfigError for options that do not go together and a source that is neither;
/// throws what the loaders throw.
ImageDataset open_data(const std::string& command, const DataChoice& choice);

}  // namespace lockstep
