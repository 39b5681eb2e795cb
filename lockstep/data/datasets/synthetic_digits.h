// Digits as a hand might draw them, made from nothing: the data set of a machine without a network.
#pragma once

#include <cstdint>

#include <lockstep/data/datasets/dataset.h>

namespace lockstep {

struct SyntheticDigitsOptions {
  std::int64_t count = 0;  ///< Images; 0: 12,000 for training, 2,000 for testing.
  std::uint64_t seed = 0;
  int threads = 1;  ///< Threads that draw; they do not change the result.
};

/// Grey 28x28 images of the ten digits in equal shares, white on black like MNIST's.
///
/// Each digit has several skeletons of strokes; an image bends one of them (jittered points,
/// rotation, shear, scale, shift), draws it with a pen of varying width and softness, and adds
/// noise. Image i is a function of (seed, split, i) alone. About 20 microseconds an image and
/// thread. Hard enough that pixels weighted linearly do not suffice, easy enough for a small
/// convolutional net.
ImageDataset make_synthetic_digits(Split split, const SyntheticDigitsOptions& options = {});

}  // namespace lockstep
