// A batch of images with labels, as the loader returns it.
#pragma once

#include <cstdint>

#include <torch/types.h>

#include <lockstep/core/export.h>

namespace lockstep {

struct LOCKSTEP_API Batch {
  torch::Tensor images{};  ///< LoaderOptions::dtype [size, channels, height, width], normalised
  torch::Tensor labels{};  ///< int64 [size]; if mixed, float32 [size, classes], see mix_labels()
  std::int64_t size = 0;
};

}  // namespace lockstep
