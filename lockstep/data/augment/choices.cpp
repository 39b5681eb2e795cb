#include <lockstep/data/augment/choices.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace lockstep::data {
namespace {

constexpr int kTries = 10;

// Python's round(): halves to even, which is also the processor's rounding.
std::int64_t rounded(double value) { return static_cast<std::int64_t>(std::nearbyint(value)); }

std::int64_t below(PhiloxStream& random, std::int64_t bound) {
  return random.below(static_cast<std::uint32_t>(bound));
}

double uniform(PhiloxStream& random, const std::array<double, 2>& range) {
  return range[0] + (range[1] - range[0]) * static_cast<double>(random.uniform());
}

double log_uniform(PhiloxStream& random, const std::array<double, 2>& range) {
  return std::exp(uniform(random, {std::log(range[0]), std::log(range[1])}));
}

}  // namespace

ImageRegion choose(const RandomCrop& crop, std::int64_t height, std::int64_t width,
                   PhiloxStream& random) {
  const std::int64_t top = below(random, height - crop.size.height + 1);
  const std::int64_t left = below(random, width - crop.size.width + 1);
  return {top, left, crop.size.height, crop.size.width};
}

ImageRegion choose(const RandomResizedCrop& crop, std::int64_t height, std::int64_t width,
                   PhiloxStream& random) {
  const auto area = static_cast<double>(height * width);
  for (int i = 0; i < kTries; ++i) {
    const double target = area * uniform(random, crop.scale);
    const double ratio = log_uniform(random, crop.ratio);
    const std::int64_t w = rounded(std::sqrt(target * ratio));
    const std::int64_t h = rounded(std::sqrt(target / ratio));
    if (w <= 0 || w > width || h <= 0 || h > height) continue;
    const std::int64_t top = below(random, height - h + 1);
    return {top, below(random, width - w + 1), h, w};
  }
  const double ratio = static_cast<double>(width) / static_cast<double>(height);
  std::int64_t w = width;
  std::int64_t h = height;
  if (ratio < crop.ratio[0]) {
    h = std::clamp<std::int64_t>(rounded(static_cast<double>(w) / crop.ratio[0]), 1, height);
  } else if (ratio > crop.ratio[1]) {
    w = std::clamp<std::int64_t>(rounded(static_cast<double>(h) * crop.ratio[1]), 1, width);
  }
  return {(height - h) / 2, (width - w) / 2, h, w};
}

std::optional<ImageRegion> choose(const RandomErasing& erasing, std::int64_t height,
                                  std::int64_t width, PhiloxStream& random) {
  if (random.uniform() >= erasing.probability) return std::nullopt;
  const auto area = static_cast<double>(height * width);
  for (int i = 0; i < kTries; ++i) {
    const double target = area * uniform(random, erasing.scale);
    const double ratio = log_uniform(random, erasing.ratio);
    const std::int64_t h = rounded(std::sqrt(target * ratio));
    const std::int64_t w = rounded(std::sqrt(target / ratio));
    if (h >= height || w >= width) continue;
    const std::int64_t top = below(random, height - h + 1);
    return ImageRegion{top, below(random, width - w + 1), h, w};
  }
  return std::nullopt;
}

ImageRegion choose(const Cutout& cutout, std::int64_t height, std::int64_t width,
                   PhiloxStream& random) {
  const auto span = [&](std::int64_t size) {
    const std::int64_t first = below(random, size) - cutout.size / 2;
    const std::int64_t begin = std::max<std::int64_t>(first, 0);
    return std::pair(begin, std::min<std::int64_t>(first + cutout.size, size) - begin);
  };
  const auto [top, rows] = span(height);
  const auto [left, columns] = span(width);
  return {top, left, rows, columns};
}

bool choose(const RandomHorizontalFlip& flip, PhiloxStream& random) {
  return random.uniform() < flip.probability;
}

bool choose(const RandomVerticalFlip& flip, PhiloxStream& random) {
  return random.uniform() < flip.probability;
}

double choose(const RandomRotation& rotation, PhiloxStream& random) {
  return uniform(random, {rotation.degrees.low, rotation.degrees.high});
}

bool choose(const RandomGrayscale& grayscale, PhiloxStream& random) {
  return random.uniform() < grayscale.probability;
}

ColorSteps choose(const ColorJitter& jitter, PhiloxStream& random) {
  std::array<ColorProperty, 4> order = {ColorProperty::kBrightness, ColorProperty::kContrast,
                                        ColorProperty::kSaturation, ColorProperty::kHue};
  for (std::size_t i = 0; i + 1 < order.size(); ++i) {
    std::swap(order[i], order[i + random.below(static_cast<std::uint32_t>(order.size() - i))]);
  }
  std::array<double, 4> factors{};
  std::array<bool, 4> changed{};
  const auto draw = [&](ColorProperty property, const auto& range) {
    const auto index = static_cast<std::size_t>(property);
    changed[index] = changes(range);
    if (changed[index]) factors[index] = uniform(random, {range.low, range.high});
  };
  draw(ColorProperty::kBrightness, jitter.brightness);
  draw(ColorProperty::kContrast, jitter.contrast);
  draw(ColorProperty::kSaturation, jitter.saturation);
  draw(ColorProperty::kHue, jitter.hue);
  ColorSteps result;
  for (const ColorProperty property : order) {
    const auto index = static_cast<std::size_t>(property);
    if (changed[index]) result.steps[result.count++] = {property, factors[index]};
  }
  return result;
}

ImageRegion center_region(ImageSize size, std::int64_t height, std::int64_t width) {
  return {rounded(static_cast<double>(height - size.height) / 2),
          rounded(static_cast<double>(width - size.width) / 2), size.height, size.width};
}

ImageSize resized(const Resize& resize, std::int64_t height, std::int64_t width) {
  if (!resize.shorter_side) return resize.size;
  constexpr std::int64_t kMost = 1
                                 << 30;  // more than any image may have, and an int can still grow
  const auto longer = [&](std::int64_t longer_side, std::int64_t shorter_side) {
    return static_cast<int>(std::min(resize.size.height * longer_side / shorter_side, kMost));
  };
  const int side = resize.size.height;
  return width <= height ? ImageSize{longer(height, width), side}
                         : ImageSize{side, longer(width, height)};
}

}  // namespace lockstep::data
