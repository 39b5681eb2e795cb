// What happens to an image between the data set and the net: a list of operators, in order.
//
//   const Augmentation cifar = {Pad{4}, RandomCrop{32}, RandomFlip{}, Normalize{mean, deviation}};
//
// A description only, the same for every engine that executes it (augment/native.h). Meanings are
// torchvision's. Random choices are a function of (seed, epoch, sample), see PhiloxStream; each
// operator draws in the order of the list.
#pragma once

#include <variant>
#include <vector>

namespace lockstep {

/// Adds `pixels` black pixels (0 before normalisation) on every side.
struct Pad {
  int pixels = 0;
};

/// Cuts a square of `size` pixels, every place equally likely.
struct RandomCrop {
  int size = 0;
};

/// Mirrors left and right with `probability`.
struct RandomFlip {
  double probability = 0.5;
};

/// (pixel / 255 - mean) / std for each channel; ends every list.
struct Normalize {
  std::vector<double> mean;
  std::vector<double> std;
};

using Operator = std::variant<Pad, RandomCrop, RandomFlip, Normalize>;
using Augmentation = std::vector<Operator>;

}  // namespace lockstep
