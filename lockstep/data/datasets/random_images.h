// Images and labels made of random numbers, for measuring speed. They contain nothing to learn.
#pragma once

#include <cstdint>

#include <lockstep/data/datasets/dataset.h>

namespace lockstep::data {

struct RandomImagesOptions {
  std::int64_t count = 0;  ///< Number of images; 0: 360 for training, 120 for testing.
  ImageShape shape = {3, 128, 128};
  std::int64_t num_classes = 1000;
  std::uint64_t seed = 0;
};

/// Every byte of an image, and every label, is uniformly random. Image i is a function of (seed,
/// split, i) alone. The defaults match the batches of PyTorch's tutorial on model parallelism.
/// Throws a ConfigError for invalid options.
ImageDataset make_random_images(Split split, const RandomImagesOptions& options = {});

}  // namespace lockstep::data
