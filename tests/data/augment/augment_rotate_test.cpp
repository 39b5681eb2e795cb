// Rotations that show the whole image: its new size, and where each pixel goes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <string>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/data/augment/native.h>
#include <lockstep/data/augment/rotate.h>
#include <tests/support/data_bytes.h>

namespace lockstep::testing_support {
namespace {

struct Turn {
  double degrees;
  std::int64_t height, width;  // the sides of the image

  double sine() const { return std::sin(degrees * std::numbers::pi / 180); }
  double cosine() const { return std::cos(degrees * std::numbers::pi / 180); }
  // The turned image's corners, rounded outwards to whole pixels.
  std::int64_t new_height() const { return side_of(height, width); }
  std::int64_t new_width() const { return side_of(width, height); }

 private:
  std::int64_t side_of(std::int64_t along, std::int64_t across) const {
    const double half = (std::abs(cosine()) * static_cast<double>(along) +
                         std::abs(sine()) * static_cast<double>(across)) /
                        2;
    const double middle = static_cast<double>(along) / 2;
    return static_cast<std::int64_t>(std::ceil(middle + half) - std::floor(middle - half));
  }
};

constexpr int kTurnFill = 99;

std::vector<double> whole_turned(const Turn& turn, Interpolation interpolation,
                                 const std::string& pixels) {
  const data::AugmentationPlan plan(
      {RandomRotation{{turn.degrees, turn.degrees}, interpolation, /*expand=*/true, kTurnFill},
       CenterCrop{{static_cast<int>(turn.new_height()), static_cast<int>(turn.new_width())}},
       Normalize{{0, 0}, {1.0 / 255, 1.0 / 255}}},
      {2, turn.height, turn.width});
  std::vector<float> output(static_cast<std::size_t>(plan.output_shape().elements()));
  plan.apply(ImageView::planar(reinterpret_cast<const std::uint8_t*>(pixels.data()),
                               {2, turn.height, turn.width}),
             {}, output.data());
  std::vector<double> bytes;
  for (const float value : output) bytes.push_back(std::round(value));
  return bytes;
}

// A crop of the expected size would move the image or add black pixels if its size were another.
TEST(RandomRotationExpanded, ShowsTheWholeSourceAboutItsCentre) {
  int compared = 0, filled = 0;
  for (const Turn& turn : {Turn{30, 20, 30}, Turn{-33.3, 20, 30}, Turn{45, 7, 12}, Turn{120, 11, 5},
                           Turn{200.5, 9, 16}, Turn{271, 13, 6}, Turn{359, 4, 21}}) {
    const std::string pixels = pattern(static_cast<std::size_t>(2 * turn.height * turn.width), 101);
    const auto nearest = whole_turned(turn, Interpolation::kNearest, pixels);
    const auto bilinear = whole_turned(turn, Interpolation::kBilinear, pixels);
    const std::int64_t plane = turn.new_height() * turn.new_width();
    ASSERT_EQ(nearest.size(), static_cast<std::size_t>(2 * plane));
    for (std::int64_t i = 0; i < 2 * plane; ++i) {
      const auto height = static_cast<double>(turn.height), width = static_cast<double>(turn.width);
      const double x = static_cast<double>(i % plane % turn.new_width()) + 0.5 -
                       static_cast<double>(turn.new_width()) / 2;
      const double y = static_cast<double>(i % plane / turn.new_width()) + 0.5 -
                       static_cast<double>(turn.new_height()) / 2;
      const double source_x = turn.cosine() * x - turn.sine() * y + width / 2;
      const double source_y = turn.sine() * x + turn.cosine() * y + height / 2;
      const auto is_near_edge = [](double at) { return std::abs(at - std::round(at)) < 0.01; };
      if (is_near_edge(source_x) || is_near_edge(source_y)) continue;
      ++compared;
      const auto at = static_cast<std::size_t>(i);
      const std::string where = str(turn.degrees, " degrees, value ", i);
      if (source_x < 0 || source_x >= width || source_y < 0 || source_y >= height) {
        ++filled;
        ASSERT_EQ(nearest[at], kTurnFill) << where;
        ASSERT_EQ(bilinear[at], kTurnFill) << where;
        continue;
      }
      const auto pixel = [&](double row, double column) -> double {
        const auto r = static_cast<std::int64_t>(std::clamp(row, 0.0, height - 1));
        const auto c = static_cast<std::int64_t>(std::clamp(column, 0.0, width - 1));
        const std::int64_t offset = (i / plane * turn.height + r) * turn.width + c;
        return static_cast<std::uint8_t>(pixels[static_cast<std::size_t>(offset)]);
      };
      ASSERT_EQ(nearest[at], pixel(source_y, source_x)) << where;
      const double left = std::floor(source_x - 0.5), top = std::floor(source_y - 0.5);
      const double right_share = source_x - 0.5 - left, lower_share = source_y - 0.5 - top;
      const auto in_row = [&](double row) {
        return (1 - right_share) * pixel(row, left) + right_share * pixel(row, left + 1);
      };
      const double mean = (1 - lower_share) * in_row(top) + lower_share * in_row(top + 1);
      ASSERT_NEAR(bilinear[at], mean - 0.5, 0.501) << where;
    }
  }
  EXPECT_GT(compared, 4000);
  EXPECT_GT(filled, 1000);
}

// Corners at whole pixels do not become larger by rounding.
TEST(RandomRotationExpanded, KnowsTheSizeOfTheResult) {
  const struct {
    double degrees;
    std::int64_t height, width;
  } cases[] = {{0, 20, 30},  {90, 30, 20},  {180, 20, 30}, {270, 30, 20},
               {30, 34, 36}, {330, 34, 36}, {150, 34, 36}, {45, 36, 36},
               {1, 22, 32},  {89, 32, 22},  {135, 36, 36}, {300, 36, 34}};
  for (const auto& c : cases) {
    const data::Rotation rotation = data::make_rotation(c.degrees, 20, 30, /*expand=*/true);
    EXPECT_EQ(rotation.height, c.height) << c.degrees;
    EXPECT_EQ(rotation.width, c.width) << c.degrees;
    const data::Rotation cut = data::make_rotation(c.degrees, 20, 30, /*expand=*/false);
    EXPECT_EQ(cut.height, 20) << c.degrees;
    EXPECT_EQ(cut.width, 30) << c.degrees;
    // The centre of the result is the centre of the image.
    for (const data::Rotation& each : {rotation, cut}) {
      const auto& m = each.matrix;
      const double x = static_cast<double>(each.width) / 2;
      const double y = static_cast<double>(each.height) / 2;
      EXPECT_NEAR(m[0] * x + m[1] * y + m[2], 15, 1e-9) << c.degrees;
      EXPECT_NEAR(m[3] * x + m[4] * y + m[5], 10, 1e-9) << c.degrees;
    }
  }
}

}  // namespace
}  // namespace lockstep::testing_support
