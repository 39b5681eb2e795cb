#include <lockstep/data/augment/resample.h>

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

constexpr int kPrecisionBits = 22;

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
  const ImageShape shape{source.shape.channels, height, width};
  resized_.resize(static_cast<std::size_t>(shape.elements()));
  for (std::int64_t c = 0; c < shape.channels; ++c) {
    combine_rows(wide_.data() + (c * rows - first_row) * width, width, width, rows_.windows,
                 resized_.data() + c * height * width, width);
  }
  return ImageView::planar(resized_.data(), shape);
}

// Columns are combined as rows, which lie together: so many bytes in one instruction.
void Resampler::widen(const ImageView& source, std::int64_t first_row, std::int64_t rows) {
  const auto [channels, height, old_width] = source.shape;
  const std::int64_t width = columns_.to;
  const std::int64_t column = channels * rows;
  upright_.resize(static_cast<std::size_t>(old_width * column));
  widened_.resize(static_cast<std::size_t>(width * column));
  wide_.resize(static_cast<std::size_t>(width * column));
  const std::uint8_t* pixels = source.pixels + first_row * source.row_stride;
  if (source.channel_stride == 1 && source.pixel_stride == channels) {
    transpose_bytes(pixels, source.row_stride, rows, old_width * channels, upright_.data(), rows);
  } else {
    for (std::int64_t c = 0; c < channels; ++c) {
      transpose_bytes(pixels + c * source.channel_stride, source.row_stride, rows, old_width,
                      upright_.data() + c * rows, column);
    }
  }
  combine_rows(upright_.data(), column, column, columns_.windows, widened_.data(), column);
  for (std::int64_t c = 0; c < channels; ++c) {
    transpose_bytes(widened_.data() + c * rows, column, width, rows, wide_.data() + c * rows * width,
                    width);
  }
}

}  // namespace lockstep
