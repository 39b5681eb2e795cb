#include <lockstep/data/augment/resample.h>

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

constexpr int kPrecisionBits = 22;
constexpr std::int32_t kHalf = 1 << (kPrecisionBits - 1);

std::uint8_t to_byte(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::clamp(sum >> kPrecisionBits, 0, 255));
}

}  // namespace

void Resampler::Windows::prepare(std::int64_t from_, std::int64_t to_) {
  if (from == from_ && to == to_) return;
  from = from_;
  to = to_;
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double radius = std::max(scale, 1.0);
  const auto most = static_cast<std::size_t>(std::ceil(radius)) * 2 + 1;
  windows.clear();
  weights.assign(most * static_cast<std::size_t>(to), 0);
  std::vector<double> triangle(most);
  for (std::int64_t x = 0; x < to; ++x) {
    const double center = (static_cast<double>(x) + 0.5) * scale;
    const auto first = std::max<std::int64_t>(static_cast<std::int64_t>(center - radius + 0.5), 0);
    const auto end = std::min(static_cast<std::int64_t>(center + radius + 0.5), from);
    double sum = 0;
    for (std::int64_t i = first; i < end; ++i) {
      const double distance = std::abs((static_cast<double>(i) + 0.5 - center) / radius);
      sum += triangle[static_cast<std::size_t>(i - first)] = std::max(1.0 - distance, 0.0);
    }
    std::int32_t* weight = weights.data() + most * static_cast<std::size_t>(x);
    windows.push_back({first, end - first, weight});
    for (std::int64_t i = 0; i < end - first; ++i) {
      weight[i] = static_cast<std::int32_t>(
          0.5 + triangle[static_cast<std::size_t>(i)] / sum * (1 << kPrecisionBits));
    }
  }
}

ImageView Resampler::resize(const ImageView& source, std::int64_t height, std::int64_t width) {
  columns_.prepare(source.shape.width, width);
  rows_.prepare(source.shape.height, height);
  // Only the rows that the second pass looks at.
  const std::int64_t first_row = rows_.windows.front().first;
  const std::int64_t rows = rows_.windows.back().first + rows_.windows.back().count - first_row;
  widen(source, first_row, rows);
  heighten(source.shape.channels, first_row, rows);
  return ImageView::planar(resized_.data(), {source.shape.channels, height, width});
}

void Resampler::widen(const ImageView& source, std::int64_t first_row, std::int64_t rows) {
  const std::int64_t width = columns_.to;
  wide_.resize(static_cast<std::size_t>(source.shape.channels * rows * width));
  std::uint8_t* output = wide_.data();
  for (std::int64_t c = 0; c < source.shape.channels; ++c) {
    for (std::int64_t y = 0; y < rows; ++y) {
      const std::uint8_t* row =
          source.pixels + c * source.channel_stride + (first_row + y) * source.row_stride;
      for (const Window& window : columns_.windows) {
        const std::uint8_t* pixel = row + window.first * source.pixel_stride;
        std::int32_t sum = kHalf;
        for (std::int64_t i = 0; i < window.count; ++i) {
          sum += pixel[i * source.pixel_stride] * window.weights[i];
        }
        *output++ = to_byte(sum);
      }
    }
  }
}

void Resampler::heighten(std::int64_t channels, std::int64_t first_row, std::int64_t rows) {
  const std::int64_t width = columns_.to;
  resized_.resize(static_cast<std::size_t>(channels * rows_.to * width));
  sums_.resize(static_cast<std::size_t>(width));
  std::uint8_t* output = resized_.data();
  for (std::int64_t c = 0; c < channels; ++c) {
    const std::uint8_t* plane = wide_.data() + c * rows * width;
    for (const Window& window : rows_.windows) {
      std::fill(sums_.begin(), sums_.end(), kHalf);
      for (std::int64_t i = 0; i < window.count; ++i) {
        const std::uint8_t* row = plane + (window.first - first_row + i) * width;
        const std::int32_t weight = window.weights[i];
        for (std::int64_t x = 0; x < width; ++x) sums_[x] += row[x] * weight;
      }
      for (std::int64_t x = 0; x < width; ++x) output[x] = to_byte(sums_[x]);
      output += width;
    }
  }
}

}  // namespace lockstep
