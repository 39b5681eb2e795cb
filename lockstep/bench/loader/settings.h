// What `lockstep bench loader` measures: its checked options, with the data opened.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <vector>

#include <lockstep/data/augment/augment.h>
#include <lockstep/data/datasets/dataset.h>
#include <lockstep/data/images/corrupt_image.h>
#include <lockstep/data/loader/loader_options.h>

namespace lockstep::bench {

/// Each engine is measured with each number of threads. All other options of the loaders are equal.
struct BenchLoaderSettings {
  ImageDataset dataset;
  Augmentation augmentation;
  std::vector<LoaderEngineKind> engines{LoaderEngineKind::kNative};
  std::vector<int> threads{1, 2};  ///< see LoaderOptions::threads
  std::int64_t batch_size = 256;
  bool channels_last = false;
  torch::ScalarType dtype = torch::kFloat32;
  OnCorruptImage on_corrupt_image = OnCorruptImage::kStop;
  int rounds = 7;                 ///< each round times every loader once
  double seconds = 0.5;           ///< time for each loader in a round
  std::filesystem::path trace{};  ///< existing folder for one trace per row; empty: no traces
};

}  // namespace lockstep::bench
