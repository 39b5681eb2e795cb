// What happens to an image between the data set and the net: a list of operators, in order.
//
//   const Augmentation cifar = {Pad{4}, RandomCrop{32}, RandomHorizontalFlip{}, Normalize{mean, deviation}};
//
// A description only, the same for every engine that executes it (augment/native.h). Names, meanings and
// defaults are those of torchvision.transforms on PIL images. Random choices are a function of (seed,
// epoch, sample), see PhiloxStream; each operator draws in the order of the list (augment/choices.h).
#pragma once

#include <array>
#include <variant>
#include <vector>

namespace lockstep {

/// In pixels; RandomCrop{32} is RandomCrop{{32, 32}}.
struct ImageSize {
  int height = 0;
  int width = 0;

  constexpr ImageSize() = default;
  constexpr ImageSize(int side) : height(side), width(side) {}  // NOLINT: meant to convert
  constexpr ImageSize(int height_, int width_) : height(height_), width(width_) {}
  bool operator==(const ImageSize&) const = default;
};

/// Adds `pixels` pixels of the byte `fill` on every side (padding_mode "constant").
struct Pad {
  int pixels = 0;
  int fill = 0;
};

/// Cuts out `size`, every place equally likely. An image must be as large.
struct RandomCrop {
  ImageSize size;
};

/// Cuts `size` out of the middle. A smaller image is padded with black first.
struct CenterCrop {
  ImageSize size;
};

/// Bilinear interpolation with antialiasing: when it shrinks, a pixel is the mean of all it covers,
/// weighted by a triangle. A JPEG of at least twice that size is decoded at a reduced one.
struct Resize {
  ImageSize size;
  /// Only the shorter side becomes size.height, the other as the aspect ratio demands; torchvision's
  /// Resize(256) in contrast to Resize((256, 256)).
  bool shorter_side = false;
};

/// Cuts out a part of random area and aspect ratio, then resizes it as Resize does. Ten tries to find one
/// that fits, then the largest central part of a permitted ratio.
struct RandomResizedCrop {
  ImageSize size;
  std::array<double, 2> scale = {0.08, 1.0};           ///< of the area, uniform
  std::array<double, 2> ratio = {3.0 / 4.0, 4.0 / 3.0};  ///< width / height, uniform in its logarithm
};

/// Mirrors left and right with `probability`.
struct RandomHorizontalFlip {
  double probability = 0.5;
};

/// Mirrors top and bottom with `probability`.
struct RandomVerticalFlip {
  double probability = 0.5;
};

/// Erases a square of `size` pixels whose centre is equally likely to be any pixel, so that part of it may
/// lie outside (DeVries, Taylor: "Improved regularization of convolutional neural networks with Cutout",
/// 2017). Before Normalize it becomes black, after it 0, which is the mean colour.
struct Cutout {
  int size = 0;
};

/// With `probability` erases a rectangle of random area and aspect ratio that lies inside of the image,
/// in ten tries or not at all. `value` is that of a tensor: after Normalize as it is, before it 0 is black
/// and 1 is white.
struct RandomErasing {
  double probability = 0.5;
  std::array<double, 2> scale = {0.02, 0.33};  ///< of the area, uniform
  std::array<double, 2> ratio = {0.3, 3.3};    ///< height / width, uniform in its logarithm
  double value = 0;
};

/// (pixel / 255 - mean) / std for each channel. Every list has one; only Cutout and RandomErasing may follow.
struct Normalize {
  std::vector<double> mean;
  std::vector<double> std;
};

using Operator = std::variant<Pad, RandomCrop, CenterCrop, Resize, RandomResizedCrop, RandomHorizontalFlip,
                              RandomVerticalFlip, Cutout, RandomErasing, Normalize>;
using Augmentation = std::vector<Operator>;

}  // namespace lockstep
