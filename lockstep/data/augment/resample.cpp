#include <lockstep/data/augment/resample.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace lockstep::data {
namespace {

constexpr int kPrecisionBits = 22;
constexpr std::int64_t kLargestFactor = 8;  // the largest reduction of a JPEG image

// Truncates towards zero, which unlike std::floor() is one instruction on every processor.
std::int32_t fixed_point(double weight) {
  const double scaled = weight * (1 << kPrecisionBits);
  return static_cast<std::int32_t>(scaled + (scaled < 0 ? -0.5 : 0.5));
}

// The old pixels [first, end) under the triangle around a new pixel, and the sum of their weights.
struct Triangle {
  std::int64_t first = 0;
  std::int64_t end = 0;
  double sum = 0;
};

// The triangle around new pixel `x`, over `count` old pixels. Writes its weights to `weights`.
Triangle triangle(std::int64_t x, std::int64_t count, double scale, double* weights) {
  const double radius = std::max(scale, 1.0);
  const double per_radius = 1.0 / radius;
  const double center = (static_cast<double>(x) + 0.5) * scale;
  Triangle result{std::max<std::int64_t>(static_cast<std::int64_t>(center - radius + 0.5), 0),
                  std::min(static_cast<std::int64_t>(center + radius + 0.5), count)};
  for (std::int64_t i = result.first; i < result.end; ++i) {
    const double distance = std::abs((static_cast<double>(i) - center + 0.5) * per_radius);
    result.sum += * weights++ = std::max(1.0 - distance, 0.0);
  }
  return result;
}

// The curve through reduced pixels, at each of the full-size pixels that one of them stands for.
// The value is the reduced pixel plus `slope` times the difference between its neighbours, plus
// `bend` times the difference between the neighbours and the pixel itself. `slope` and `bend` each
// sum to 0 over the positions, which keeps the mean.
struct Curve {
  std::array<double, kLargestFactor> slope{};
  std::array<double, kLargestFactor> bend{};

  explicit Curve(std::int64_t factor) {
    const auto pixels = static_cast<double>(factor);
    for (std::int64_t place = 0; place < factor; ++place) {
      const double at = (static_cast<double>(place) + 0.5) / pixels - 0.5;
      slope[static_cast<std::size_t>(place)] = at / 2;
      bend[static_cast<std::size_t>(place)] = at * at / 2 - (1 - 1 / (pixels * pixels)) / 24;
    }
  }
};

// Folds the weights of pixels [begin, end) of the full size onto the `count` reduced ones, each of
// which stands for `factor` pixels. A missing neighbour at an end is replaced by the last pixel.
// `reduced` holds the weights from reduced pixel `first` on.
void fold(const double* weights, std::int64_t begin, std::int64_t end, std::int64_t factor,
          const Curve& curve, std::int64_t count, std::int64_t first, double* reduced) {
  for (std::int64_t at = begin / factor, pixel = begin; pixel < end; ++at) {
    double level = 0;
    double slope = 0;
    double bend = 0;
    for (const std::int64_t next = std::min((at + 1) * factor, end); pixel < next; ++pixel) {
      const auto place = static_cast<std::size_t>(pixel - at * factor);
      const double weight = *weights++;
      level += weight;
      slope += weight * curve.slope[place];
      bend += weight * curve.bend[place];
    }
    reduced[std::max<std::int64_t>(at - 1, 0) - first] += bend - slope;
    reduced[at - first] += level - 2 * bend;
    reduced[std::min(at + 1, count - 1) - first] += bend + slope;
  }
}

}  // namespace

void Resampler::Windows::prepare(const Extent& from_, std::int64_t to_) {
  if (from == from_ && to == to_) return;
  from = from_;
  to = to_;
  const double scale = static_cast<double>(from.count) / static_cast<double>(to);
  const std::int64_t covered = (from.first + from.count + from.factor - 1) / from.factor;
  const Curve curve(from.factor);
  // A triangle touches at most this number of pixels, plus a neighbour on either side after
  // folding.
  const auto most = static_cast<std::size_t>(std::ceil(std::max(scale, 1.0))) * 2 + 4;
  full.resize(most);
  folded.resize(most);
  windows.resize(static_cast<std::size_t>(to));
  weights.resize(most * static_cast<std::size_t>(to));
  std::int32_t* next = weights.data();
  for (std::int64_t x = 0; x < to; ++x) {
    const Triangle under = triangle(x, from.count, scale, full.data());
    RowWindow window{from.first + under.first, under.end - under.first, next};
    const double* values = full.data();
    if (from.factor > 1) {
      const std::int64_t end = from.first + under.end;
      const std::int64_t first = std::max<std::int64_t>(window.first / from.factor - 1, 0);
      const std::int64_t count = std::min((end - 1) / from.factor + 2, covered) - first;
      std::fill_n(folded.data(), count, 0.0);
      fold(full.data(), window.first, end, from.factor, curve, covered, first, folded.data());
      window.first = first;
      window.count = count;
      values = folded.data();
    }
    windows[static_cast<std::size_t>(x)] = window;
    for (std::int64_t i = 0; i < window.count; ++i) *next++ = fixed_point(values[i] / under.sum);
  }
}

ImageView Resampler::resize(const ReducedView& reduced, std::int64_t height, std::int64_t width) {
  const ImageView& source = reduced.view;
  const ImageRegion& part = reduced.part;
  columns_.prepare({part.left, part.width, reduced.factor}, width);
  rows_.prepare({part.top, part.height, reduced.factor}, height);
  // Only the rows that the second pass reads.
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

// Combines columns as contiguous rows: a whole vector of bytes in one instruction.
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
    transpose_bytes(widened_.data() + c * rows, column, width, rows,
                    wide_.data() + c * rows * width, width);
  }
}

}  // namespace lockstep::data
