// The known data sets by name.
#pragma once

#include <filesystem>
#include <string>

#include <lockstep/data/datasets/dataset.h>

namespace lockstep::data {

/// Loads a part of the data set `name`, one of known_data_names(), from the folder that find_data()
/// returned, as load_mnist(), load_cifar10() or load_cifar100() does. Throws a ConfigError for any
/// other name.
ImageDataset load_known_data(const std::string& name, const std::filesystem::path& directory,
                             Split split);

}  // namespace lockstep::data
