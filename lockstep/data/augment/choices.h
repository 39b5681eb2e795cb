// The random choices of each operator, separate from the work on pixels, so that all engines and
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

namespace lockstep::data {

/// torchvision's RandomCrop.get_params.
ImageRegion choose(const RandomCrop& crop, std::int64_t height, std::int64_t width,
                   PhiloxStream& random);
/// torchvision's RandomResizedCrop.get_params.
ImageRegion choose(const RandomResizedCrop& crop, std::int64_t height, std::int64_t width,
                   PhiloxStream& random);
/// torchvision's RandomErasing.get_params, preceded by the draw for its probability.
std::optional<ImageRegion> choose(const RandomErasing& erasing, std::int64_t height,
                                  std::int64_t width, PhiloxStream& random);
/// The erased square, clipped to the image.
ImageRegion choose(const Cutout& cutout, std::int64_t height, std::int64_t width,
                   PhiloxStream& random);
bool choose(const RandomHorizontalFlip& flip, PhiloxStream& random);
bool choose(const RandomVerticalFlip& flip, PhiloxStream& random);
/// The angle in degrees, counterclockwise.
double choose(const RandomRotation& rotation, PhiloxStream& random);
bool choose(const RandomGrayscale& grayscale, PhiloxStream& random);

enum class ColorProperty { kBrightness, kContrast, kSaturation, kHue };

struct ColorStep {
  ColorProperty property;
  double factor;
  bool operator==(const ColorStep&) const = default;
};

/// The steps of ColorJitter for one image, in order.
struct ColorSteps {
  std::array<ColorStep, 4> steps{};
  std::size_t count = 0;

  const ColorStep* begin() const { return steps.data(); }
  const ColorStep* end() const { return steps.data() + count; }
};

/// torchvision's ColorJitter.get_params: draws an order of all four properties, then the factors of
/// the properties that change, brightness first. The steps hold only these properties.
ColorSteps choose(const ColorJitter& jitter, PhiloxStream& random);

/// The region that torchvision's center_crop cuts out of an image of at least `size`: the middle,
/// with half pixels rounded to even.
ImageRegion center_region(ImageSize size, std::int64_t height, std::int64_t width);
/// Whether ColorJitter changes a property: its range holds more than the neutral value.
inline bool changes(const FactorRange& range) { return range != FactorRange(); }
inline bool changes(const SymmetricRange& range) { return range != SymmetricRange(); }
/// The size after a Resize. Like torchvision, rounds the longer side down.
ImageSize resized(const Resize& resize, std::int64_t height, std::int64_t width);

}  // namespace lockstep::data
