// The random choices of each operator, apart from what they do to pixels, so that all engines and
// tests share them. They draw from the stream in a fixed order: a row before a column, an area
// before a ratio.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include <lockstep/core/philox.h>
#include <lockstep/data/augment/augment.h>
#include <lockstep/data/images/image.h>

namespace lockstep {

/// torchvision's RandomCrop.get_params.
Box choose(const RandomCrop& crop, std::int64_t height, std::int64_t width, PhiloxStream& random);
/// torchvision's RandomResizedCrop.get_params.
Box choose(const RandomResizedCrop& crop, std::int64_t height, std::int64_t width,
           PhiloxStream& random);
/// torchvision's RandomErasing.get_params, preceded by the draw for its probability.
std::optional<Box> choose(const RandomErasing& erasing, std::int64_t height, std::int64_t width,
                          PhiloxStream& random);
/// Clipped to the image.
Box choose(const Cutout& cutout, std::int64_t height, std::int64_t width, PhiloxStream& random);
bool choose(const RandomHorizontalFlip& flip, PhiloxStream& random);
bool choose(const RandomVerticalFlip& flip, PhiloxStream& random);
/// Degrees, counterclockwise.
double choose(const RandomRotation& rotation, PhiloxStream& random);
bool choose(const RandomGrayscale& grayscale, PhiloxStream& random);

enum class ColorProperty { kBrightness, kContrast, kSaturation, kHue };

struct ColorStep {
  ColorProperty property;
  double factor;
  bool operator==(const ColorStep&) const = default;
};

/// What ColorJitter does to an image, in order.
struct ColorSteps {
  std::array<ColorStep, 4> steps{};
  std::size_t count = 0;

  const ColorStep* begin() const { return steps.data(); }
  const ColorStep* end() const { return steps.data() + count; }
};

/// torchvision's ColorJitter.get_params: an order of all four properties, then the factors of those
/// that change, brightness first. The steps hold only these.
ColorSteps choose(const ColorJitter& jitter, PhiloxStream& random);

/// Where torchvision's center_crop cuts an image of at least that size: the middle, halves to even.
Box center_box(ImageSize size, std::int64_t height, std::int64_t width);
/// Whether the operator changes what it names: its range holds more than the neutral value.
inline bool changes(const FactorRange& range) { return range != FactorRange(); }
inline bool changes(const SymmetricRange& range) { return range != SymmetricRange(); }
/// What an image becomes; torchvision truncates the longer side.
ImageSize resized(const Resize& resize, std::int64_t height, std::int64_t width);

}  // namespace lockstep
