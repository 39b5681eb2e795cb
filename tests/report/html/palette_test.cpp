// The colors of charts are legible, and can be told apart by people who do not see red or green.
#include <lockstep/report/svg.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include <lockstep/core/strings.h>

namespace lockstep::testing_support {
namespace {

using Triple = std::array<double, 3>;
using Matrix = std::array<Triple, 3>;

Triple product(const Matrix& matrix, const Triple& values) {
  Triple result{};
  for (std::size_t row = 0; row < 3; ++row) {
    for (std::size_t i = 0; i < 3; ++i) result[row] += matrix[row][i] * values[i];
  }
  return result;
}

// The linear red, green and blue of "#rrggbb", from 0 to 1.
Triple linear_of(const std::string& color) {
  Triple linear{};
  for (std::size_t i = 0; i < 3; ++i) {
    const double value = std::stoi(color.substr(1 + 2 * i, 2), nullptr, 16) / 255.0;
    linear[i] = value <= 0.04045 ? value / 12.92 : std::pow((value + 0.055) / 1.055, 2.4);
  }
  return linear;
}

// As WCAG defines it: from 1 to 21.
double contrast(const std::string& a, const std::string& b) {
  const auto luminance = [](const std::string& color) {
    const Triple linear = linear_of(color);
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const double one = luminance(a) + 0.05, other = luminance(b) + 0.05;
  return std::max(one, other) / std::min(one, other);
}

// CIE L*a*b* under the white D65.
Triple lab_of(const Triple& linear) {
  constexpr Matrix kToXyz = {{{0.4124564, 0.3575761, 0.1804375},
                              {0.2126729, 0.7151522, 0.0721750},
                              {0.0193339, 0.1191920, 0.9503041}}};
  constexpr Triple kWhite = {0.95047, 1, 1.08883};
  Triple xyz = product(kToXyz, linear);
  for (std::size_t i = 0; i < 3; ++i) {
    const double part = xyz[i] / kWhite[i];
    xyz[i] = part > 0.008856 ? std::cbrt(part) : 7.787 * part + 16.0 / 116;
  }
  return {116 * xyz[1] - 16, 500 * (xyz[0] - xyz[1]), 200 * (xyz[1] - xyz[2])};
}

// What people see: all colors; without the pigment for red (protanopia); without that for green
// (deuteranopia). Machado, Oliveira and Fernandes 2009, with the severity 1.
constexpr Matrix kSights[] = {{{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}},
                              {{{0.152286, 1.052583, -0.204868},
                                {0.114503, 0.786281, 0.099216},
                                {-0.003882, -0.048116, 1.051998}}},
                              {{{0.367322, 0.860646, -0.227968},
                                {0.280085, 0.672501, 0.047413},
                                {-0.011820, 0.042940, 0.968881}}}};

// The difference of two colors for one of kSights; 2.3 is just noticeable side by side.
double difference(const Matrix& sight, const std::string& a, const std::string& b) {
  const auto seen = [&](const std::string& color) {
    Triple linear = product(sight, linear_of(color));
    for (double& part : linear) part = std::clamp(part, 0.0, 1.0);
    return lab_of(linear);
  };
  const Triple one = seen(a), other = seen(b);
  return std::hypot(one[0] - other[0], one[1] - other[1], one[2] - other[2]);
}

TEST(Palettes, AreLegible) {
  for (const svg::Palette& palette : {svg::kLight, svg::kDark}) {
    for (const char* color : {palette.ink, palette.soft, palette.gray}) {
      EXPECT_GE(contrast(color, palette.back), 4.5) << color;
    }
    for (const char* color : palette.colors) {
      EXPECT_GE(contrast(color, palette.back), 4.5) << color;
    }
  }
}

TEST(Palettes, CanBeToldApartWithoutRedOrGreen) {
  for (const svg::Palette& palette : {svg::kLight, svg::kDark}) {
    for (const Matrix& sight : kSights) {
      for (std::size_t i = 0; i < svg::kColors; ++i) {
        for (std::size_t j = 0; j < i; ++j) {
          EXPECT_GE(difference(sight, palette.colors[i], palette.colors[j]), 20)
              << palette.colors[i] << " and " << palette.colors[j];
        }
      }
    }
  }
}

// Red and green of one lightness, which the colors of a chart must not be.
TEST(Palettes, AreMeasuredAsTheyAreSeen) {
  EXPECT_NEAR(contrast("#000000", "#ffffff"), 21, 1e-9);
  EXPECT_NEAR(contrast("#767676", "#ffffff"), 4.54, 0.01);
  EXPECT_GT(difference(kSights[0], "#bb6622", "#778811"), 30);
  EXPECT_LT(difference(kSights[2], "#bb6622", "#778811"), 15);
}

std::string ink_of(const svg::Palette& palette) { return str("text{fill:", palette.ink, "}\n"); }

// A reader of SVG that knows no schemes has the first one.
TEST(StyleSheet, HasTheColorsOfBothSchemes) {
  EXPECT_EQ(
      svg::style_sheet(".l{fill:none}", ink_of),
      str("<style>\ntext{font:12px system-ui,sans-serif}.l{fill:none}\ntext{fill:", svg::kLight.ink,
          "}\n@media (prefers-color-scheme:dark){\ntext{fill:", svg::kDark.ink,
          "}\n}\n</style>\n"));
}

}  // namespace
}  // namespace lockstep::testing_support
