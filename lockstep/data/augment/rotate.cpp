#include <lockstep/data/augment/rotate.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>

#include <lockstep/data/augment/rotate_pairs.h>

namespace lockstep::data {
namespace {

constexpr int kFractionBits = 16;

// Python's round(number, 15), for numbers from -1 to 1.
double round_15(double number) { return std::nearbyint(number * 1e15) / 1e15; }

std::int64_t fixed(double number) {
  return static_cast<std::int64_t>(std::floor(number * (1 << kFractionBits) + 0.5));
}

std::int64_t floor_divide(std::int64_t dividend, std::int64_t divisor) {
  const std::int64_t quotient = dividend / divisor;
  return quotient * divisor > dividend ? quotient - 1 : quotient;
}

struct PixelRun {
  std::int64_t begin;
  std::int64_t end;
};

// The range of x for which start + x * step is in [0, limit).
PixelRun where_within(std::int64_t start, std::int64_t step, std::int64_t limit,
                      const PixelRun& all) {
  if (step == 0) return start >= 0 && start < limit ? all : PixelRun{0, 0};
  if (step < 0) {  // mirror the case of a positive step
    start = limit - 1 - start;
    step = -step;
  }
  const auto first_at = [&](std::int64_t bound) { return -floor_divide(start - bound, step); };
  return {std::max(first_at(0), all.begin), std::min(first_at(limit), all.end)};
}

}  // namespace

Rotation make_rotation(double degrees, std::int64_t height, std::int64_t width, bool expand) {
  const double angle = -(degrees * (std::numbers::pi / 180));
  const double cosine = round_15(std::cos(angle));
  const double sine = round_15(std::sin(angle));
  Rotation result{{cosine, sine, 0, -sine, cosine, 0}, height, width};
  auto& m = result.matrix;
  struct Point {
    double x, y;
  };
  const auto turned = [&](double x, double y) {
    return Point{m[0] * x + m[1] * y + m[2], m[3] * x + m[4] * y + m[5]};
  };
  const double center_x = static_cast<double>(width) / 2;
  const double center_y = static_cast<double>(height) / 2;
  const auto [left, top] = turned(-center_x, -center_y);
  m[2] = left + center_x;
  m[5] = top + center_y;
  if (!expand) return result;
  if (degrees == 90 || degrees == 270) {  // exact, while the corners' coordinates may not be
    result.height = width;
    result.width = height;
  } else {
    const Point corners[] = {turned(0, 0), turned(static_cast<double>(width), 0),
                             turned(static_cast<double>(width), static_cast<double>(height)),
                             turned(0, static_cast<double>(height))};
    const auto [west, east] = std::ranges::minmax(corners, {}, &Point::x);
    const auto [north, south] = std::ranges::minmax(corners, {}, &Point::y);
    result.width = static_cast<std::int64_t>(std::ceil(east.x) - std::floor(west.x));
    result.height = static_cast<std::int64_t>(std::ceil(south.y) - std::floor(north.y));
  }
  const auto [x, y] = turned(-static_cast<double>(result.width - width) / 2,
                             -static_cast<double>(result.height - height) / 2);
  m[2] = x;
  m[5] = y;
  return result;
}

void Rotator::rotate_nearest(const ImageView& source, const Rotation& rotation,
                             std::uint8_t* output) {
  const auto& m = rotation.matrix;
  const auto [channels, height, width] = source.shape;
  const std::int64_t plane = rotation.height * rotation.width;
  const std::int64_t right_x = fixed(m[0]);
  const std::int64_t right_y = fixed(m[3]);
  const std::int64_t down_x = fixed(m[1]);
  const std::int64_t down_y = fixed(m[4]);
  std::int64_t x0 = fixed(m[2] + m[0] * 0.5 + m[1] * 0.5);
  std::int64_t y0 = fixed(m[5] + m[3] * 0.5 + m[4] * 0.5);
  places_.resize(static_cast<std::size_t>(rotation.width));
  for (std::int64_t y = 0; y < rotation.height; ++y, x0 += down_x, y0 += down_y) {
    PixelRun span = where_within(x0, right_x, width << kFractionBits, {0, rotation.width});
    span = where_within(y0, right_y, height << kFractionBits, span);
    if (span.begin >= span.end) continue;
    const std::int64_t count = span.end - span.begin;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t x = (x0 + right_x * (span.begin + i)) >> kFractionBits;
      const std::int64_t row = (y0 + right_y * (span.begin + i)) >> kFractionBits;
      places_[static_cast<std::size_t>(i)] = row * source.row_stride + x * source.pixel_stride;
    }
    for (std::int64_t c = 0; c < channels; ++c) {
      const std::uint8_t* pixels = source.pixels + c * source.channel_stride;
      std::uint8_t* row = output + c * plane + y * rotation.width + span.begin;
      for (std::int64_t i = 0; i < count; ++i)
        row[i] = pixels[places_[static_cast<std::size_t>(i)]];
    }
  }
}

void Rotator::rotate(const ImageView& source, const Rotation& rotation, Interpolation interpolation,
                     std::uint8_t fill, std::uint8_t* output) {
  const std::int64_t plane = rotation.height * rotation.width;
  if (interpolation == Interpolation::kNearest) {
    std::fill_n(output, source.shape.channels * plane, fill);
    return rotate_nearest(source, rotation, output);
  }
  for (std::int64_t first = 0; first < source.shape.channels; first += kPairChannels) {
    ImageView part = source;
    part.pixels += first * source.channel_stride;
    part.shape.channels = std::min(source.shape.channels - first, kPairChannels);
    make_pairs(part, pairs_);
    rotate_pairs(pairs_.data(), part.shape, rotation, fill, output + first * plane);
  }
}

}  // namespace lockstep::data
