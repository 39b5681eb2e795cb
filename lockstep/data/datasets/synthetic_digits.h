// Generated images of handwritten-looking digits: a data set that needs no download.
#pragma once

#include <cstdint>

#include <lockstep/core/export.h>
#include <lockstep/data/datasets/dataset.h>

namespace lockstep {

struct LOCKSTEP_API SyntheticDigitsOptions {
  std::int64_t count = 0;  ///< Number of images; 0: 12,000 for training, 2,000 for testing.
  std::uint64_t seed = 0;
  int threads = 1;  ///< Number of threads that draw; it does not affect the result.
};

/// Grey 28x28 images of the ten digits in equal shares, white on black like MNIST's.
///
/// Each digit has several skeletons of strokes. An image distorts one of them (jittered points,
/// rotation, shear, scale, shift), draws it with a pen of varying width and softness, and adds
/// noise. Image i is a function of (seed, split, i) alone. An image takes about 20 microseconds of
/// one thread. The digits are too hard for a linear classifier on pixels, and easy enough for a
/// small convolutional net.
LOCKSTEP_API ImageDataset make_synthetic_digits(Split split,
                                                const SyntheticDigitsOptions& options = {});

}  // namespace lockstep
