// The preprocessing of an image between the data set and the model: an ordered list of operators.
//
//   const Augmentation cifar = {Pad{4}, RandomCrop{32}, RandomHorizontalFlip{},
//                               Normalize{mean, deviation}};
//
// The list is only a description, and every engine executes the same one (augment/native.h). Names,
// meanings and defaults are those of torchvision.transforms on PIL images; each operator's comment
// lists the torchvision features that it lacks. Given the same choices, the native engine produces
// the same bytes as torchvision, except that up to 1% of a resized image's bytes may differ by 1
// (up to 25% where Pillow 13 processes the axes in another order, see augment/resample.h).
// Normalised numbers differ by less than 1e-6. Random choices are a function of (seed, epoch,
// sample) and of how often the sample has already occurred in the epoch, see SampleKey. The
// operators draw in the order of the list (augment/choices.h).
#pragma once

#include <algorithm>
#include <array>
#include <variant>
#include <vector>

#include <lockstep/core/export.h>

namespace lockstep {

/// A size in pixels; RandomCrop{32} is RandomCrop{{32, 32}}.
struct LOCKSTEP_API ImageSize {
  int height = 0;
  int width = 0;

  constexpr ImageSize() = default;
  constexpr ImageSize(int side) : height(side), width(side) {}  // NOLINT: meant to convert
  constexpr ImageSize(int height_, int width_) : height(height_), width(width_) {}
  bool operator==(const ImageSize&) const = default;
};

/// The range of a uniform random number. One number n stands for {-n, n}, as in RandomRotation{15}.
struct LOCKSTEP_API SymmetricRange {
  double low = 0;
  double high = 0;

  constexpr SymmetricRange() = default;
  constexpr SymmetricRange(double limit) : low(-limit), high(limit) {}  // NOLINT: meant to convert
  constexpr SymmetricRange(double low_, double high_) : low(low_), high(high_) {}
  bool operator==(const SymmetricRange&) const = default;
};

/// The range of a uniform random factor. One number n stands for {max(0, 1 - n), 1 + n}, as in
/// ColorJitter{0.4}.
struct LOCKSTEP_API FactorRange {
  double low = 1;
  double high = 1;

  constexpr FactorRange() = default;
  constexpr FactorRange(double n)
      : low(std::max(0.0, 1 - n)), high(1 + n) {}  // NOLINT: meant to convert
  constexpr FactorRange(double low_, double high_) : low(low_), high(high_) {}
  bool operator==(const FactorRange&) const = default;
};

/// Adds a border of `pixels` pixels of the byte `fill`. All sides have the same width and all
/// channels the same byte; only padding_mode "constant" is supported.
struct LOCKSTEP_API Pad {
  int pixels = 0;
  int fill = 0;
};

/// Cuts out `size` at a uniformly random position. The image must be at least that large: padding
/// and pad_if_needed are not supported, so put a Pad before it.
struct LOCKSTEP_API RandomCrop {
  ImageSize size{};
};

/// Cuts `size` out of the middle. A smaller image is padded with black first.
struct LOCKSTEP_API CenterCrop {
  ImageSize size{};
};

/// Resizes with bilinear interpolation and antialiasing: when shrinking, an output pixel is the
/// mean of all pixels it covers, weighted by a triangle. Other interpolations and max_size are not
/// supported. In a data set that was loaded with Decoding::kScaled, a JPEG of at least 2.4 times
/// the wanted size is decoded at a reduced size.
struct LOCKSTEP_API Resize {
  ImageSize size{};
  /// If set, the shorter side becomes size.height, and the other follows from the aspect ratio.
  /// This is torchvision's Resize(256), in contrast to Resize((256, 256)).
  bool shorter_side = false;
};

/// Cuts out a part of random area and aspect ratio, then resizes it as Resize does. If ten attempts
/// do not fit, takes the largest central part of a permitted ratio. Bilinear only.
struct LOCKSTEP_API RandomResizedCrop {
  ImageSize size{};
  std::array<double, 2> scale = {0.08, 1.0};  ///< share of the area, uniform
  std::array<double, 2> ratio = {3.0 / 4.0,
                                 4.0 / 3.0};  ///< width / height, uniform in its logarithm
};

/// Mirrors left and right with `probability`.
struct LOCKSTEP_API RandomHorizontalFlip {
  double probability = 0.5;
};

/// Mirrors top and bottom with `probability`.
struct LOCKSTEP_API RandomVerticalFlip {
  double probability = 0.5;
};

/// How an output pixel is computed: from the nearest pixel, or as the mean of four, weighted by
/// distance.
enum class Interpolation { kNearest, kBilinear };

/// Turns the image counterclockwise about its centre by `degrees`; RandomRotation{{30, 30}} always
/// turns by 30. Pixels from outside the image get the byte `fill`. With `expand` the output is
/// enlarged until the whole turned image fits, so the list needs a crop or a Resize after it.
/// Another centre, and a `fill` per channel, are not supported.
struct LOCKSTEP_API RandomRotation {
  SymmetricRange degrees{};
  Interpolation interpolation = Interpolation::kNearest;
  bool expand = false;
  int fill = 0;
};

/// Changes four properties in random order, by factors that are drawn for each image. Images must
/// have one or three channels. A property whose range holds only 1 (only 0 for the hue) stays
/// unchanged. Images of one channel have neither saturation nor hue.
///   brightness: every byte is multiplied by the factor;
///   contrast: the distance to the current mean grey of the whole image is multiplied;
///   saturation: the distance to the pixel's own grey is multiplied;
///   hue: turned by the factor, where 1 is the whole circle, so that +-0.5 is the opposite colour.
///   Goes through HSV in bytes, as PIL does, which changes a pixel even where the factor happens to
///   be 0.
/// Results are rounded towards 0 and clamped to 0 to 255.
struct LOCKSTEP_API ColorJitter {
  FactorRange brightness{};
  FactorRange contrast{};
  FactorRange saturation{};
  SymmetricRange hue{};  ///< within -0.5 to 0.5
};

/// Makes one or three equal channels of 0.299 red + 0.587 green + 0.114 blue, rounded. Later
/// operators, such as Normalize, see that number of channels.
struct LOCKSTEP_API Grayscale {
  int num_output_channels = 1;
};

/// With `probability`, applies Grayscale and keeps the image's number of channels.
struct LOCKSTEP_API RandomGrayscale {
  double probability = 0.1;
};

/// Erases a square of `size` pixels a side whose centre is a uniformly random pixel, so part of the
/// square may lie outside the image (DeVries, Taylor: "Improved regularization of convolutional
/// neural networks with Cutout", 2017). Before Normalize the square becomes black; after it, 0,
/// which is the mean colour.
struct LOCKSTEP_API Cutout {
  int size = 0;
};

/// With `probability`, erases a rectangle of random area and aspect ratio inside the image. If ten
/// attempts do not fit, nothing is erased. `value` is on the scale of a tensor: after Normalize it
/// is used as it is; before Normalize, 0 is black and 1 is white, and it is rounded to a byte if
/// operators other than Normalize and erasing follow. `value` applies to all channels: a value per
/// channel and "random" are not supported.
struct LOCKSTEP_API RandomErasing {
  double probability = 0.5;
  std::array<double, 2> scale = {0.02, 0.33};  ///< share of the area, uniform
  std::array<double, 2> ratio = {0.3, 3.3};    ///< height / width, uniform in its logarithm
  double value = 0;
};

/// Computes (pixel / 255 - mean) / std for each channel. Every list has exactly one Normalize; only
/// Cutout and RandomErasing may follow it.
struct LOCKSTEP_API Normalize {
  std::vector<double> mean{};
  std::vector<double> std{};
};

using Operator = std::variant<Pad, RandomCrop, CenterCrop, Resize, RandomResizedCrop,
                              RandomHorizontalFlip, RandomVerticalFlip, RandomRotation, ColorJitter,
                              Grayscale, RandomGrayscale, Cutout, RandomErasing, Normalize>;
using Augmentation = std::vector<Operator>;

}  // namespace lockstep
