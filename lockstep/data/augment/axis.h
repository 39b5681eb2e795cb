// The source position of each output pixel along one axis, after pads, crops and flips.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

namespace lockstep::data {

/// Output position x shows source position origin + step * x if that lies in [low, high), else the
/// padding. Pads, crops and flips compose in this form without touching any pixels.
struct Axis {
  std::int64_t size;
  std::int64_t origin = 0;
  std::int64_t step = 1;
  std::int64_t low = 0;
  std::int64_t high = size;

  void pad(std::int64_t before, std::int64_t after) {
    origin -= step * before;
    size += before + after;
  }
  /// Pads an axis shorter than `least` like CenterCrop: evenly, with the odd pixel after the image.
  void pad_to(std::int64_t least) {
    const std::int64_t missing = std::max<std::int64_t>(least - size, 0);
    pad(missing / 2, (missing + 1) / 2);
  }
  void crop(std::int64_t first, std::int64_t count) {
    origin += step * first;
    size = count;
    // A later pad must not bring back what the crop cut off.
    const std::int64_t last = origin + step * (count - 1);
    low = std::max(low, std::min(origin, last));
    high = std::min(high, std::max(origin, last) + 1);
  }
  void flip() {
    origin += step * (size - 1);
    step = -step;
  }
  /// The source positions that are shown: [first, second).
  std::pair<std::int64_t, std::int64_t> shown() const {
    const auto [begin, end] = visible();
    if (begin == end) return {0, 0};
    const std::int64_t first = origin + step * begin;
    const std::int64_t last = origin + step * (end - 1);
    return {std::min(first, last), std::max(first, last) + 1};
  }
  /// Removes the source positions before `first` and from `end` on.
  void narrow_source(std::int64_t first, std::int64_t end) {
    low = std::max(low, first) - first;
    high = std::min(high, end) - first;
    origin -= first;
  }
  /// Output positions [first, second) show the source, the others the padding. If both are equal,
  /// there is only padding.
  std::pair<std::int64_t, std::int64_t> visible() const {
    const std::int64_t first = step > 0 ? low - origin : origin - (high - 1);
    const std::int64_t last = first + (high - low);
    const std::int64_t begin = std::clamp<std::int64_t>(first, 0, size);
    return {begin, std::clamp(last, begin, size)};
  }
  /// Whether every output position shows the source, in the source's order.
  bool is_window() const {
    return step == 1 && visible() == std::pair<std::int64_t, std::int64_t>{0, size};
  }
};

}  // namespace lockstep::data
