// What happens to an image between the data set and the net: a list of operators, in order.
//
//   const Augmentation cifar = {Pad{4}, RandomCrop{32}, RandomHorizontalFlip{},
//                               Normalize{mean, deviation}};
//
// A description only, the same for every engine that executes it (augment/native.h). Names,
// meanings and defaults are those of torchvision.transforms on PIL images; an operator says what it
// lacks of torchvision's. Given the same choices the native engine makes the same bytes, except
// that up to 1% of a resized image's may differ by 1 (up to 25% where Pillow 13 takes the axes in
// another order, see augment/resample.h), and normalised numbers that differ by less than 1e-6.
// Random choices are a function of (seed, epoch, sample) and of how often the sample came before in
// the epoch, see SampleKey; each operator draws in the order of the list (augment/choices.h).
#pragma once

#include <algorithm>
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

/// The range of a uniform random number. One number n stands for {-n, n}, as in RandomRotation{15}.
struct SymmetricRange {
  double low = 0;
  double high = 0;

  constexpr SymmetricRange() = default;
  constexpr SymmetricRange(double limit) : low(-limit), high(limit) {}  // NOLINT: meant to convert
  constexpr SymmetricRange(double low_, double high_) : low(low_), high(high_) {}
  bool operator==(const SymmetricRange&) const = default;
};

/// The range of a uniform random factor. One number n stands for {max(0, 1 - n), 1 + n}, as in
/// ColorJitter{0.4}.
struct FactorRange {
  double low = 1;
  double high = 1;

  constexpr FactorRange() = default;
  constexpr FactorRange(double n)
      : low(std::max(0.0, 1 - n)), high(1 + n) {}  // NOLINT: meant to convert
  constexpr FactorRange(double low_, double high_) : low(low_), high(high_) {}
  bool operator==(const FactorRange&) const = default;
};

/// Adds `pixels` pixels of the byte `fill` on every side. One width for all sides, one byte for all
/// channels and padding_mode "constant" only.
struct Pad {
  int pixels = 0;
  int fill = 0;
};

/// Cuts out `size`, every place equally likely. An image must be as large: there is no padding or
/// pad_if_needed, put a Pad before it.
struct RandomCrop {
  ImageSize size{};
};

/// Cuts `size` out of the middle. A smaller image is padded with black first.
struct CenterCrop {
  ImageSize size{};
};

/// Bilinear interpolation with antialiasing: when it shrinks, a pixel is the mean of all it covers,
/// weighted by a triangle. There is no other interpolation and no max_size. In a data set that was
/// loaded with Decoding::kScaled, a JPEG of at least 2.4 times that size is decoded at a reduced
/// one.
struct Resize {
  ImageSize size{};
  /// Only the shorter side becomes size.height, the other as the aspect ratio demands;
  /// torchvision's Resize(256) in contrast to Resize((256, 256)).
  bool shorter_side = false;
};

/// Cuts out a part of random area and aspect ratio, then resizes it as Resize does. Ten tries to
/// find one that fits, then the largest central part of a permitted ratio. Bilinear only.
struct RandomResizedCrop {
  ImageSize size{};
  std::array<double, 2> scale = {0.08, 1.0};  ///< of the area, uniform
  std::array<double, 2> ratio = {3.0 / 4.0,
                                 4.0 / 3.0};  ///< width / height, uniform in its logarithm
};

/// Mirrors left and right with `probability`.
struct RandomHorizontalFlip {
  double probability = 0.5;
};

/// Mirrors top and bottom with `probability`.
struct RandomVerticalFlip {
  double probability = 0.5;
};

/// Where a new pixel lies between old ones: the nearest, or the mean of four, weighted by distance.
enum class Interpolation { kNearest, kBilinear };

/// Turns the image counterclockwise about its centre by `degrees`; RandomRotation{{30, 30}} always
/// turns by
/// 30. What comes from outside of the image shows the byte `fill`. With `expand` the image grows to
///     hold
/// all of the old one, so that a list needs a crop or a Resize after it. There is no other centre,
/// and one `fill` for all channels.
struct RandomRotation {
  SymmetricRange degrees{};
  Interpolation interpolation = Interpolation::kNearest;
  bool expand = false;
  int fill = 0;
};

/// Changes four properties in random order, by factors that are drawn for each image; for images of
/// one or three channels. A range of only 1 (of only 0 for the hue) leaves its property alone. One
/// channel has neither saturation nor hue.
///   brightness: every byte times the factor;
///   contrast: the distance to the mean grey of the whole image, as it is then, times the factor;
///   saturation: the distance to the pixel's own grey times the factor;
///   hue: turned by the factor, where 1 is the whole circle, so that +-0.5 is the opposite colour.
///   Goes through HSV in bytes, as PIL does, which changes a pixel even where the factor happens to
///   be 0.
/// Results are cut to bytes: rounded towards 0, from 0 to 255.
struct ColorJitter {
  FactorRange brightness{};
  FactorRange contrast{};
  FactorRange saturation{};
  SymmetricRange hue{};  ///< within -0.5 to 0.5
};

/// One or three equal channels of 0.299 red + 0.587 green + 0.114 blue, rounded. What follows, as
/// Normalize, sees that number of channels.
struct Grayscale {
  int num_output_channels = 1;
};

/// With `probability` as Grayscale, with as many channels as the image has.
struct RandomGrayscale {
  double probability = 0.1;
};

/// Erases a square of `size` pixels whose centre is equally likely to be any pixel, so that part of
/// it may lie outside (DeVries, Taylor: "Improved regularization of convolutional neural networks
/// with Cutout", 2017). Before Normalize it becomes black, after it 0, which is the mean colour.
struct Cutout {
  int size = 0;
};

/// With `probability` erases a rectangle of random area and aspect ratio that lies inside of the
/// image, in ten tries or not at all. `value` is that of a tensor: after Normalize as it is, before
/// it 0 is black and 1 is white, rounded to a byte where more than Normalize and erasing follows.
/// One number for all channels: there is no value of each channel and no "random".
struct RandomErasing {
  double probability = 0.5;
  std::array<double, 2> scale = {0.02, 0.33};  ///< of the area, uniform
  std::array<double, 2> ratio = {0.3, 3.3};    ///< height / width, uniform in its logarithm
  double value = 0;
};

/// (pixel / 255 - mean) / std for each channel. Every list has one; only Cutout and RandomErasing
/// may follow.
struct Normalize {
  std::vector<double> mean{};
  std::vector<double> std{};
};

using Operator = std::variant<Pad, RandomCrop, CenterCrop, Resize, RandomResizedCrop,
                              RandomHorizontalFlip, RandomVerticalFlip, RandomRotation, ColorJitter,
                              Grayscale, RandomGrayscale, Cutout, RandomErasing, Normalize>;
using Augmentation = std::vector<Operator>;

}  // namespace lockstep
