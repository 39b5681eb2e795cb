#include <lockstep/data/augment/rotate.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <vector>

namespace lockstep {
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

struct Span {
  std::int64_t begin;
  std::int64_t end;
};

// The x for which start + x * step is in [0, limit).
Span where_within(std::int64_t start, std::int64_t step, std::int64_t limit, const Span& all) {
  if (step == 0) return start >= 0 && start < limit ? all : Span{0, 0};
  if (step < 0) {  // the same from the other side
    start = limit - 1 - start;
    step = -step;
  }
  const auto first_at = [&](std::int64_t bound) { return -floor_divide(start - bound, step); };
  return {std::max(first_at(0), all.begin), std::min(first_at(limit), all.end)};
}

void rotate_nearest(const ImageView& source, const Rotation& rotation, std::uint8_t* output) {
  const auto& m = rotation.matrix;
  const auto [channels, height, width] = source.shape;
  const std::int64_t plane = rotation.height * rotation.width;
  const std::int64_t right_x = fixed(m[0]);
  const std::int64_t right_y = fixed(m[3]);
  const std::int64_t down_x = fixed(m[1]);
  const std::int64_t down_y = fixed(m[4]);
  std::int64_t x0 = fixed(m[2] + m[0] * 0.5 + m[1] * 0.5);
  std::int64_t y0 = fixed(m[5] + m[3] * 0.5 + m[4] * 0.5);
  std::vector<std::int64_t> places(static_cast<std::size_t>(rotation.width));
  for (std::int64_t y = 0; y < rotation.height; ++y, x0 += down_x, y0 += down_y) {
    Span span = where_within(x0, right_x, width << kFractionBits, {0, rotation.width});
    span = where_within(y0, right_y, height << kFractionBits, span);
    if (span.begin >= span.end) continue;
    const std::int64_t count = span.end - span.begin;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t x = (x0 + right_x * (span.begin + i)) >> kFractionBits;
      const std::int64_t row = (y0 + right_y * (span.begin + i)) >> kFractionBits;
      places[static_cast<std::size_t>(i)] = row * source.row_stride + x * source.pixel_stride;
    }
    for (std::int64_t c = 0; c < channels; ++c) {
      const std::uint8_t* pixels = source.pixels + c * source.channel_stride;
      std::uint8_t* row = output + c * plane + y * rotation.width + span.begin;
      for (std::int64_t i = 0; i < count; ++i) row[i] = pixels[places[static_cast<std::size_t>(i)]];
    }
  }
}

// The four source pixels about a point; beyond the edge is the edge.
struct Corners {
  std::int64_t top_left, top_right, bottom_left, bottom_right;
  double right, down;  // the share of the right two, and of the bottom two
};

Corners corners_of(double x, double y, const ImageView& source) {
  const double left = std::floor(x - 0.5);
  const double top = std::floor(y - 0.5);
  const auto column = static_cast<std::int64_t>(left);
  const auto row = static_cast<std::int64_t>(top);
  const std::int64_t last_column = source.shape.width - 1;
  const std::int64_t last_row = source.shape.height - 1;
  const std::int64_t x0 = std::max<std::int64_t>(column, 0) * source.pixel_stride;
  const std::int64_t x1 = std::min(column + 1, last_column) * source.pixel_stride;
  const std::int64_t y0 = std::max<std::int64_t>(row, 0) * source.row_stride;
  const std::int64_t y1 = std::min(row + 1, last_row) * source.row_stride;
  return {y0 + x0, y0 + x1, y1 + x0, y1 + x1, x - 0.5 - left, y - 0.5 - top};
}

void rotate_bilinear(const ImageView& source, const Rotation& rotation, std::uint8_t* output) {
  const auto& m = rotation.matrix;
  const auto [channels, height, width] = source.shape;
  const std::int64_t plane = rotation.height * rotation.width;
  const auto mix = [](double from, double to, double share) { return from + (to - from) * share; };
  for (std::int64_t y = 0; y < rotation.height; ++y) {
    const double down = static_cast<double>(y) + 0.5;
    for (std::int64_t x = 0; x < rotation.width; ++x) {
      const double right = static_cast<double>(x) + 0.5;
      const double source_x = m[0] * right + m[1] * down + m[2];
      const double source_y = m[3] * right + m[4] * down + m[5];
      if (!(source_x >= 0 && source_x < static_cast<double>(width) && source_y >= 0 &&
            source_y < static_cast<double>(height))) {
        continue;
      }
      const Corners at = corners_of(source_x, source_y, source);
      for (std::int64_t c = 0; c < channels; ++c) {
        const std::uint8_t* pixels = source.pixels + c * source.channel_stride;
        const double top = mix(pixels[at.top_left], pixels[at.top_right], at.right);
        const double bottom = mix(pixels[at.bottom_left], pixels[at.bottom_right], at.right);
        output[c * plane + y * rotation.width + x] =
            static_cast<std::uint8_t>(mix(top, bottom, at.down));
      }
    }
  }
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
  if (degrees == 90 || degrees == 270) {  // exactly, where the corners' coordinates may not be
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

void rotate(const ImageView& source, const Rotation& rotation, Interpolation interpolation,
            std::uint8_t* output) {
  if (interpolation == Interpolation::kNearest) {
    rotate_nearest(source, rotation, output);
  } else {
    rotate_bilinear(source, rotation, output);
  }
}

}  // namespace lockstep
