// What `bench loader` loads: a recipe's data set, a folder of images, or a packed file; and the list.
#pragma once

#include <string>

#include <lockstep/data/augment.h>
#include <lockstep/data/dataset.h>

namespace lockstep {

struct BenchLoaderData {
  ImageDataset dataset;
  Augmentation augmentation;
};

/// `dataset` is the name of a recipe, a folder with a subfolder for each class, or a file that
/// `lockstep data pack` wrote; `data` is --data, empty where it was not given. `operators` is
/// "recipe" (of a recipe's data set), "normalize", "crop-flip", "crop-flip-cutout", or
/// "random-resized-crop" to `size` pixels, with a flip. ConfigError for another word, or one that does
/// not go with the data set; DataError when that cannot be read.
BenchLoaderData bench_loader_data(const std::string& dataset, const std::string& operators, int size,
                                  const std::string& data);

}  // namespace lockstep
