#include <lockstep/data/augment/resample.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace lockstep {
namespace {

constexpr int kPrecisionBits = 22;

// Weights of the pixels from `first` on.
struct Weights {
  std::int64_t first = 0;
  std::vector<double> values;
};

// The triangle around new pixel `x`, over `count` old pixels; returns its sum.
double triangle(std::int64_t x, std::int64_t count, double scale, Weights& weights) {
  const double radius = std::max(scale, 1.0);
  const double center = (static_cast<double>(x) + 0.5) * scale;
  const auto end = std::min(static_cast<std::int64_t>(center + radius + 0.5), count);
  weights.first = std::max<std::int64_t>(static_cast<std::int64_t>(center - radius + 0.5), 0);
  weights.values.clear();
  double sum = 0;
  for (std::int64_t i = weights.first; i < end; ++i) {
    const double distance = std::abs((static_cast<double>(i) + 0.5 - center) / radius);
    sum += weights.values.emplace_back(std::max(1.0 - distance, 0.0));
  }
  return sum;
}

// What pixel number `place` of the `factor` in a reduced one takes from the reduced one before,
// from its own and from the one after. Over all places these shares sum to 0, `factor` and 0, so
// that the mean is kept.
std::array<double, 3> shares_at(std::int64_t place, std::int64_t factor) {
  const auto pixels = static_cast<double>(factor);
  const double at = (static_cast<double>(place) + 0.5) / pixels - 0.5;
  const double bend = at * at / 2 - (1 - 1 / (pixels * pixels)) / 24;
  return {bend - at / 2, 1 - 2 * bend, bend + at / 2};
}

// From the weights of pixels at full size to those of the `count` reduced ones. At the ends, where
// a neighbour is missing, the last pixel takes its place.
void reduce(const Weights& full, std::int64_t factor, std::int64_t count, Weights& reduced) {
  const auto pixels = static_cast<std::int64_t>(full.values.size());
  reduced.first = std::max<std::int64_t>(full.first / factor - 1, 0);
  const std::int64_t end = std::min((full.first + pixels - 1) / factor + 2, count);
  reduced.values.assign(static_cast<std::size_t>(end - reduced.first), 0);
  for (std::int64_t i = 0; i < pixels; ++i) {
    const std::int64_t at = (full.first + i) / factor;
    const std::array<double, 3> shares = shares_at((full.first + i) % factor, factor);
    for (std::int64_t k = 0; k < 3; ++k) {
      const std::int64_t neighbour = std::clamp<std::int64_t>(at + k - 1, 0, count - 1);
      reduced.values[static_cast<std::size_t>(neighbour - reduced.first)] +=
          full.values[static_cast<std::size_t>(i)] * shares[static_cast<std::size_t>(k)];
    }
  }
}

}  // namespace

void Resampler::Windows::prepare(const Extent& from_, std::int64_t to_) {
  if (from == from_ && to == to_) return;
  from = from_;
  to = to_;
  const double scale = static_cast<double>(from.count) / static_cast<double>(to);
  const std::int64_t covered = (from.first + from.count + from.factor - 1) / from.factor;
  Weights full;
  Weights reduced;
  windows.clear();
  weights.clear();
  for (std::int64_t x = 0; x < to; ++x) {
    const double sum = triangle(x, from.count, scale, full);
    full.first += from.first;
    if (from.factor > 1) reduce(full, from.factor, covered, reduced);
    const Weights& used = from.factor > 1 ? reduced : full;
    windows.push_back({used.first, static_cast<std::int64_t>(used.values.size()), nullptr});
    for (const double value : used.values) {
      weights.push_back(
          static_cast<std::int32_t>(std::floor(0.5 + value / sum * (1 << kPrecisionBits))));
    }
  }
  const std::int32_t* weight = weights.data();
  for (RowWindow& window : windows) {
    window.weights = weight;
    weight += window.count;
  }
}

ImageView Resampler::resize(const ReducedView& reduced, std::int64_t height, std::int64_t width) {
  const ImageView& source = reduced.view;
  const Box& part = reduced.part;
  columns_.prepare({part.left, part.width, reduced.factor}, width);
  rows_.prepare({part.top, part.height, reduced.factor}, height);
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
