#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/data/augment/choices.h>
#include <lockstep/data/augment/native.h>
#include <lockstep/data/augment/recolor.h>
#include <tests/support/data_bytes.h>
#include <tests/support/messages.h>

namespace lockstep::testing_support {
namespace {

using Bytes = std::vector<std::uint8_t>;
using Pixel = std::array<std::uint8_t, 3>;

Bytes random_bytes(std::int64_t count) {
  PhiloxStream random(99, 0, 0);
  Bytes result(static_cast<std::size_t>(count));
  for (auto& byte : result) {
    // Black and white, where results are clipped, come up more often than in uniform bytes.
    const std::uint32_t number = random.below(320);
    byte = static_cast<std::uint8_t>(number < 256 ? number : number % 2 * 255);
  }
  return result;
}

// The bytes of the image that the augmentation `operators` makes, in CHW order.
Bytes made_by(Augmentation operators, const ImageView& image, const SampleKey& key = {}) {
  std::int64_t channels = image.shape.channels;
  for (const Operator& op : operators) {
    if (const auto* gray = std::get_if<Grayscale>(&op)) channels = gray->num_output_channels;
  }
  const auto count = static_cast<std::size_t>(channels);
  operators.push_back(
      Normalize{std::vector<double>(count, 0), std::vector<double>(count, 1.0 / 255)});
  const data::AugmentationPlan plan(operators, image.shape);
  std::vector<float> output(static_cast<std::size_t>(plan.output_shape().elements()));
  plan.apply(image, key, output.data());
  return {output.begin(), output.end()};
}

Bytes made_by(const Augmentation& operators, const Bytes& bytes, const ImageShape& shape,
              const SampleKey& key = {}) {
  return made_by(operators, ImageView::planar(bytes.data(), shape), key);
}

// PIL's formulas, one pixel at a time, with PIL's types.

std::uint8_t pil_blend(int from, int to, float factor) {
  const float value = static_cast<float>(from) + factor * static_cast<float>(to - from);
  if (value <= 0) return 0;
  if (value >= 255) return 255;
  return static_cast<std::uint8_t>(value);
}

std::uint8_t pil_gray(const Pixel& pixel) {
  return static_cast<std::uint8_t>(
      (pixel[0] * 19595 + pixel[1] * 38470 + pixel[2] * 7471 + 0x8000) >> 16);
}

Pixel pil_hsv(const Pixel& rgb) {
  const auto [red, green, blue] = rgb;
  const int largest = std::max({red, green, blue});
  const int smallest = std::min({red, green, blue});
  if (largest == smallest) return {0, 0, static_cast<std::uint8_t>(largest)};
  const auto range = static_cast<float>(largest - smallest);
  const float saturation = range / static_cast<float>(largest);
  const auto distance = [&](int channel) { return static_cast<float>(largest - channel) / range; };
  float hue = 0;
  if (red == largest) {
    hue = distance(blue) - distance(green);
  } else if (green == largest) {
    hue = static_cast<float>(2.0 + distance(red) - distance(blue));
  } else {
    hue = static_cast<float>(4.0 + distance(green) - distance(red));
  }
  hue = static_cast<float>(std::fmod(hue / 6.0 + 1.0, 1.0));
  return {static_cast<std::uint8_t>(hue * 255.0), static_cast<std::uint8_t>(saturation * 255.0),
          static_cast<std::uint8_t>(largest)};
}

Pixel pil_rgb(const Pixel& hsv) {
  const std::uint8_t value = hsv[2];
  const double sixths = hsv[0] * 6.0 / 255.0;
  const int sector = static_cast<int>(std::floor(sixths));
  const auto rest = static_cast<float>(sixths - sector);
  const auto share = static_cast<float>(hsv[1] / 255.0);
  const auto rounded = [](double number) { return static_cast<std::uint8_t>(std::round(number)); };
  const std::uint8_t low = rounded(value * (1.0 - share));
  const std::uint8_t falling = rounded(value * (1.0 - share * rest));
  const std::uint8_t rising = rounded(value * (1.0 - share * (1.0 - rest)));
  const Pixel sectors[] = {{value, rising, low},  {falling, value, low}, {low, value, rising},
                           {low, falling, value}, {rising, low, value},  {value, low, falling}};
  return sectors[sector % 6];
}

// A colour image of planes, each of which is changed as PIL does it.
struct PilImage {
  Bytes bytes;

  std::size_t plane() const { return bytes.size() / 3; }
  Pixel at(std::size_t i) const { return {bytes[i], bytes[i + plane()], bytes[i + 2 * plane()]}; }
  template <class Change>
  void for_each(const Change& change) {
    for (std::size_t i = 0; i < plane(); ++i) {
      const Pixel pixel = change(at(i));
      for (std::size_t c = 0; c < 3; ++c) bytes[i + c * plane()] = pixel[c];
    }
  }
  void apply(const data::ColorStep& step) {
    const auto factor = static_cast<float>(step.factor);
    const auto blend_from = [&](const Pixel& pixel, int from) {
      return Pixel{pil_blend(from, pixel[0], factor), pil_blend(from, pixel[1], factor),
                   pil_blend(from, pixel[2], factor)};
    };
    double sum = 0;
    for (std::size_t i = 0; i < plane(); ++i) sum += pil_gray(at(i));
    const int mean = static_cast<int>(sum / static_cast<double>(plane()) + 0.5);
    for_each([&](const Pixel& pixel) {
      switch (step.property) {
        case data::ColorProperty::kBrightness:
          return blend_from(pixel, 0);
        case data::ColorProperty::kContrast:
          return blend_from(pixel, mean);
        case data::ColorProperty::kSaturation:
          return blend_from(pixel, pil_gray(pixel));
        default: {
          Pixel hsv = pil_hsv(pixel);
          hsv[0] = static_cast<std::uint8_t>(hsv[0] + static_cast<int>(step.factor * 255));
          return pil_rgb(hsv);
        }
      }
    });
  }
};

TEST(ColorJitter, EqualsPilsFormulasInTheOrderDrawn) {
  const ColorJitter jitter{.brightness = 0.9, .contrast = 0.9, .saturation = {0, 3}, .hue = 0.5};
  const ImageShape shapes[] = {{3, 1, 1}, {3, 3, 5}, {3, 7, 9}, {3, 8, 8}, {3, 5, 13}, {3, 31, 33}};
  for (const ImageShape& shape : shapes) {
    const Bytes bytes = random_bytes(shape.elements());
    for (std::uint64_t sample = 0; sample < 60; ++sample) {
      PilImage expected{bytes};
      PhiloxStream random(0, 0, sample);
      for (const data::ColorStep& step : data::choose(jitter, random)) expected.apply(step);
      ASSERT_EQ(made_by({jitter}, bytes, shape, {.sample = sample}), expected.bytes)
          << shape.height << "x" << shape.width << ", sample " << sample;
    }
  }
}

TEST(ColorJitter, HueOfEveryColour) {
  // Every third value of red with every green and blue, and hue shifts in both directions.
  constexpr std::int64_t kPixels = 256 * 256;
  for (int red = 0; red < 256; red += 3) {
    Bytes bytes(3 * kPixels);
    for (std::int64_t i = 0; i < kPixels; ++i) {
      bytes[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(red);
      bytes[static_cast<std::size_t>(i + kPixels)] = static_cast<std::uint8_t>(i / 256);
      bytes[static_cast<std::size_t>(i + 2 * kPixels)] = static_cast<std::uint8_t>(i);
    }
    const int shift = red - 127;
    PilImage expected{bytes};
    expected.for_each([&](const Pixel& pixel) {
      Pixel hsv = pil_hsv(pixel);
      hsv[0] = static_cast<std::uint8_t>(hsv[0] + shift);
      return pil_rgb(hsv);
    });
    data::adjust_hue({bytes.data(), 3, kPixels, kPixels}, shift);
    ASSERT_EQ(bytes, expected.bytes) << "red " << red;
  }
}

TEST(ColorJitter, TheMeanCountsWhatIsPaddedErasedOrCutOff) {
  const ImageShape shape{3, 9, 11};
  const Bytes bytes = random_bytes(shape.elements());
  const ColorJitter contrast{.contrast = {0.25, 0.25}};
  const Augmentation lists[] = {{Pad{4, 200}},
                                {RandomCrop{5}},
                                {CenterCrop{{4, 20}}, RandomHorizontalFlip{1}},
                                {RandomErasing{1, {0.3, 0.5}, {1, 1}, 1}},
                                {Pad{30, 80}, RandomCrop{{10, 12}}}};
  for (Augmentation list : lists) {
    for (std::uint64_t sample = 0; sample < 20; ++sample) {
      PilImage expected{made_by(list, bytes, shape, {.sample = sample})};
      expected.apply({data::ColorProperty::kContrast, 0.25});
      list.push_back(contrast);
      ASSERT_EQ(made_by(list, bytes, shape, {.sample = sample}), expected.bytes)
          << "sample " << sample;
      list.pop_back();
    }
  }
}

TEST(ColorJitter, GeometryAfterItMovesChangedPixelsAndPadding) {
  const ImageShape shape{3, 9, 11};
  const Bytes bytes = random_bytes(shape.elements());
  const Augmentation list = {Pad{2, 100}, ColorJitter{.brightness = {0.5, 0.5}},
                             RandomHorizontalFlip{1}};
  PilImage expected{made_by({Pad{2, 100}, RandomHorizontalFlip{1}}, bytes, shape)};
  expected.apply({data::ColorProperty::kBrightness, 0.5});
  EXPECT_EQ(made_by(list, bytes, shape), expected.bytes);
  EXPECT_EQ(expected.bytes[0], 50) << "the padding";
}

TEST(ColorJitter, OneChannelHasNeitherSaturationNorHue) {
  const ImageShape shape{1, 28, 28};
  const Bytes bytes = random_bytes(shape.elements());
  EXPECT_EQ(made_by({ColorJitter{.saturation = {3, 3}, .hue = {0.3, 0.3}}}, bytes, shape), bytes);
  int sum = 0;
  for (const std::uint8_t byte : bytes) sum += byte;
  const int mean = static_cast<int>(sum / 784.0 + 0.5);
  Bytes expected = bytes;
  for (auto& byte : expected) byte = pil_blend(mean, byte, 1.75F);
  EXPECT_EQ(made_by({ColorJitter{.contrast = {1.75, 1.75}}}, bytes, shape), expected);
}

TEST(Grayscale, HasOneChannelOrThreeEqualOnes) {
  const ImageShape shape{3, 13, 21};
  const Bytes bytes = random_bytes(shape.elements());
  const PilImage image{bytes};
  Bytes gray;
  for (std::size_t i = 0; i < image.plane(); ++i) gray.push_back(pil_gray(image.at(i)));
  Bytes three = gray;
  three.insert(three.end(), gray.begin(), gray.end());
  three.insert(three.end(), gray.begin(), gray.end());
  EXPECT_EQ(made_by({Grayscale{}}, bytes, shape), gray);
  EXPECT_EQ(made_by({Grayscale{3}}, bytes, shape), three);
  EXPECT_EQ(made_by({RandomGrayscale{1}}, bytes, shape), three);
  EXPECT_EQ(made_by({RandomGrayscale{0}}, bytes, shape), bytes);
  const ImageShape one{1, 13, 21};
  EXPECT_EQ(made_by({Grayscale{}}, gray, one), gray);
  EXPECT_EQ(made_by({RandomGrayscale{1}}, gray, one), gray);
  EXPECT_EQ(made_by({Grayscale{3}}, gray, one), three);
  // The operators that follow see the new number of channels.
  EXPECT_EQ(made_by({Grayscale{3}, Resize{7}, ColorJitter{.saturation = {0.1, 0.1}}, Grayscale{}},
                    bytes, shape),
            made_by({Grayscale{}, Resize{7}}, bytes, shape));
  EXPECT_EQ(made_by({Pad{40, 7}, RandomCrop{2}, Grayscale{}}, bytes, shape, {.sample = 1}),
            Bytes(4, 7))
      << "nothing but padding";
}

// Where no pixel of the image is visible, the padding alone is the image.
TEST(ColorJitter, ChangesAnImageOfNothingButPadding) {
  const Bytes bytes = random_bytes(3);
  const auto changed = [&](const ColorJitter& jitter) {
    return made_by({Pad{200, 100}, RandomCrop{2}, jitter}, bytes, {3, 1, 1});
  };
  EXPECT_EQ(changed({.brightness = {0.5, 0.5}}), Bytes(12, 50));
  EXPECT_EQ(changed({.brightness = {3, 3}}), Bytes(12, 255));
  EXPECT_EQ(changed({.contrast = {0.5, 0.5}}), Bytes(12, 100)) << "the mean is the padding";
  EXPECT_EQ(changed({.saturation = {2, 2}, .hue = {0.3, 0.3}}), Bytes(12, 100)) << "it is grey";
}

TEST(ColorJitter, ChangesWhatACropLeavesOfAChangedImage) {
  const ImageShape shape{3, 9, 11};
  const Bytes bytes = random_bytes(shape.elements());
  const Operator firsts[] = {ColorJitter{.brightness = {0.5, 0.5}}, Grayscale{3},
                             RandomRotation{{30, 30}}, Resize{{8, 12}}};
  const CenterCrop crop{{4, 5}};
  const ColorJitter contrast{.contrast = {0.25, 0.25}};
  for (const Operator& first : firsts) {
    const Bytes cropped = made_by({first, crop}, bytes, shape);
    const Bytes expected = made_by({contrast, Pad{1, 40}}, cropped, {3, 4, 5});
    EXPECT_EQ(made_by({first, crop, contrast, Pad{1, 40}}, bytes, shape), expected)
        << first.index();
    const Bytes mirrored =
        made_by({RandomHorizontalFlip{1}, RandomVerticalFlip{1}}, cropped, {3, 4, 5});
    EXPECT_EQ(
        made_by({first, crop, RandomHorizontalFlip{1}, RandomVerticalFlip{1}, contrast, Pad{1, 40}},
                bytes, shape),
        made_by({contrast, Pad{1, 40}}, mirrored, {3, 4, 5}))
        << first.index();
  }
}

TEST(RandomErasing, RoundsItsByteOnlyIfPixelsFollow) {
  // 0.3 is 76.5 of 255, which lies between two bytes.
  const RandomErasing erasing{1, {0.3, 0.5}, {1, 1}, 0.3};
  const Bytes black(64);
  const auto largest = [&](Augmentation list) {
    list.push_back(Normalize{{0}, {1}});
    std::vector<float> output(64);
    const ImageShape shape{1, 8, 8};
    data::AugmentationPlan(list, shape)
        .apply(ImageView::planar(black.data(), shape), {}, output.data());
    return *std::ranges::max_element(output);
  };
  EXPECT_NEAR(largest({erasing}), 0.3, 1e-6);
  EXPECT_NEAR(largest({erasing, RandomHorizontalFlip{1}}), 77 / 255.0, 1e-6);
}

// Two operators in one list make the image that they make one after the other, from planes and from
// interleaved channels.
TEST(AugmentationPlan, OperatorsOfAListEqualOnesInStages) {
  const ImageShape shape{3, 9, 11};
  const Bytes bytes = random_bytes(shape.elements());
  Bytes interleaved(bytes.size());
  for (std::size_t i = 0; i < bytes.size(); ++i) interleaved[i % 99 * 3 + i / 99] = bytes[i];
  const RandomRotation rotation{{30, 30}, Interpolation::kBilinear, false, 60};
  const struct {
    Operator op;
    ImageShape made;
  } firsts[] = {{RandomHorizontalFlip{1}, shape},
                {RandomVerticalFlip{1}, shape},
                {RandomRotation{{180, 180}}, shape},
                {rotation, shape},
                {Pad{2, 100}, {3, 13, 15}},
                {CenterCrop{{9, 13}}, {3, 9, 13}},
                {CenterCrop{{12, 11}}, {3, 12, 11}},
                {CenterCrop{{6, 7}}, {3, 6, 7}},
                {RandomCrop{{5, 8}}, {3, 5, 8}},
                {RandomResizedCrop{{6, 5}}, {3, 6, 5}},
                {Resize{{5, 8}}, {3, 5, 8}},
                {Cutout{5}, shape},
                {RandomErasing{1, {0.3, 0.5}, {1, 1}, 1}, shape},
                {ColorJitter{.brightness = {0.5, 0.5}}, shape},
                {ColorJitter{.hue = {0.2, 0.2}}, shape},
                {Grayscale{3}, shape},
                {Grayscale{1}, {1, 9, 11}}};
  const Operator seconds[] = {RandomHorizontalFlip{1},
                              RandomVerticalFlip{1},
                              RandomRotation{{180, 180}},
                              rotation,
                              Pad{1, 40},
                              CenterCrop{{14, 6}},
                              CenterCrop{{4, 17}},
                              Resize{{7, 6}},
                              ColorJitter{.brightness = {1.5, 1.5}},
                              ColorJitter{.contrast = {0.25, 0.25}},
                              ColorJitter{.saturation = {2, 2}},
                              ColorJitter{.hue = {-0.3, -0.3}},
                              Grayscale{3},
                              Grayscale{1}};
  for (const auto& [first, made] : firsts) {
    const Bytes between = made_by({first}, bytes, shape);
    ASSERT_EQ(between.size(), static_cast<std::size_t>(made.elements())) << first.index();
    for (const Operator& second : seconds) {
      const Bytes expected = made_by({second}, between, made);
      const auto which = str("operators ", first.index(), " and ", second.index());
      EXPECT_EQ(made_by({first, second}, bytes, shape), expected) << which;
      EXPECT_EQ(made_by({first, second}, ImageView::interleaved(interleaved.data(), shape)),
                expected)
          << which;
    }
  }
}

TEST(RandomRotation, QuarterTurnsMovePixelsOnly) {
  const ImageShape shape{3, 5, 8};
  const Bytes bytes = random_bytes(shape.elements());
  const auto turned = [&](double degrees, Interpolation interpolation, bool expand) {
    const Augmentation list = {RandomRotation{{degrees, degrees}, interpolation, expand}};
    if (!expand) return made_by(list, bytes, shape);
    return made_by({list[0], CenterCrop{{8, 5}}}, bytes, shape);
  };
  Bytes quarter(bytes.size());  // counterclockwise: the right column becomes the upper row
  for (std::size_t i = 0; i < quarter.size(); ++i) {
    const std::size_t c = i / 40;
    const std::size_t y = i % 40 / 5;
    const std::size_t x = i % 5;
    quarter[i] = bytes[c * 40 + x * 8 + (7 - y)];
  }
  const Bytes half = made_by({RandomHorizontalFlip{1}, RandomVerticalFlip{1}}, bytes, shape);
  Bytes three_quarters(bytes.size());
  for (std::size_t i = 0; i < quarter.size(); ++i) {
    three_quarters[i] = quarter[i / 40 * 40 + 39 - i % 40];
  }
  for (const Interpolation interpolation : {Interpolation::kNearest, Interpolation::kBilinear}) {
    EXPECT_EQ(turned(0, interpolation, false), bytes);
    EXPECT_EQ(turned(-720, interpolation, false), bytes);
    EXPECT_EQ(turned(180, interpolation, false), half);
    EXPECT_EQ(turned(-180, interpolation, false), half);
    EXPECT_EQ(turned(90, interpolation, true), quarter);
    EXPECT_EQ(turned(-270, interpolation, true), quarter);
    EXPECT_EQ(turned(270, interpolation, true), three_quarters);
  }
}

// The pixel of a plane of 20 x 30; outside of it, the nearest pixel at the edge.
double clamped(const std::uint8_t* plane, double y, double x) {
  const auto row = static_cast<int>(std::clamp(y, 0.0, 19.0));
  return plane[row * 30 + static_cast<int>(std::clamp(x, 0.0, 29.0))];
}

TEST(RandomRotation, ShowsTheSourceTurnedBackAboutTheCentre) {
  const ImageShape shape{3, 20, 30};
  const Bytes bytes = random_bytes(shape.elements());
  int compared = 0;
  for (const double degrees : {17.0, -33.3, 45.0, 120.0, 271.0}) {
    const RandomRotation nearest{{degrees, degrees}, Interpolation::kNearest, false, 99};
    RandomRotation bilinear = nearest;
    bilinear.interpolation = Interpolation::kBilinear;
    const Bytes nearests = made_by({nearest}, bytes, shape);
    const Bytes bilinears = made_by({bilinear}, bytes, shape);
    const double sine = std::sin(degrees * std::numbers::pi / 180);
    const double cosine = std::cos(degrees * std::numbers::pi / 180);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const std::uint8_t* plane = bytes.data() + i / 600 * 600;
      const double y = static_cast<double>(i % 600 / 30) - 9.5;
      const double x = static_cast<double>(i % 30) - 14.5;
      // Row numbers grow downwards, which reverses the counterclockwise direction.
      const double source_x = cosine * x - sine * y + 15;
      const double source_y = sine * x + cosine * y + 10;
      const auto is_near_edge = [](double at) { return std::abs(at - std::round(at)) < 0.01; };
      if (is_near_edge(source_x) || is_near_edge(source_y)) continue;
      ++compared;
      if (source_x < 0 || source_x >= 30 || source_y < 0 || source_y >= 20) {
        ASSERT_EQ(nearests[i], 99) << degrees << " degrees, byte " << i;
        ASSERT_EQ(bilinears[i], 99) << degrees << " degrees, byte " << i;
        continue;
      }
      ASSERT_EQ(nearests[i], clamped(plane, source_y, source_x))
          << degrees << " degrees, byte " << i;
      const double left = std::floor(source_x - 0.5);
      const double top = std::floor(source_y - 0.5);
      const auto row_at = [&](double row) {
        const double share = source_x - 0.5 - left;
        return (1 - share) * clamped(plane, row, left) + share * clamped(plane, row, left + 1);
      };
      const double share = source_y - 0.5 - top;
      const double mean = (1 - share) * row_at(top) + share * row_at(top + 1);
      ASSERT_NEAR(bilinears[i], mean - 0.5, 0.501) << degrees << " degrees, byte " << i;
    }
  }
  EXPECT_GT(compared, 5 * 1700);
}

TEST(RandomRotation, TurnsWhatTheListShowsInAnyOrderOfBytes) {
  const ImageShape shape{3, 21, 19};
  const Bytes bytes = random_bytes(shape.elements());
  Bytes interleaved(bytes.size());
  for (std::size_t i = 0; i < bytes.size(); ++i) interleaved[i % 399 * 3 + i / 399] = bytes[i];
  const Augmentation before[] = {{},
                                 {RandomHorizontalFlip{1}, RandomVerticalFlip{1}},
                                 {RandomCrop{15}, RandomHorizontalFlip{1}},
                                 {Pad{3, 50}, RandomCrop{{20, 24}}},
                                 {Cutout{9}},
                                 {Resize{{12, 17}}}};
  for (const Interpolation interpolation : {Interpolation::kNearest, Interpolation::kBilinear}) {
    const RandomRotation rotation{{25, 25}, interpolation, false, 10};
    for (const Augmentation& list : before) {
      Augmentation both = list;
      both.push_back(rotation);
      both.push_back(Pad{1, 200});
      // The image before the rotation, made in a separate step.
      const Bytes shown = made_by(list, bytes, shape);
      Augmentation with_normalize = list;
      with_normalize.push_back(Normalize{{0, 0, 0}, {1, 1, 1}});
      const ImageShape shown_shape = data::AugmentationPlan(with_normalize, shape).output_shape();
      const Bytes expected = made_by({rotation, Pad{1, 200}}, shown, shown_shape);
      EXPECT_EQ(made_by(both, bytes, shape), expected);
      EXPECT_EQ(made_by(both, ImageView::interleaved(interleaved.data(), shape)), expected);
    }
  }
}

// A quarter turn of 4 x 5 pixels puts centres between pixels, and some exactly on the edge. A point
// on an edge belongs to the pixel after it; on the last edge it belongs to no pixel.
TEST(RandomRotation, AnEdgeBelongsToThePixelAfterIt) {
  const ImageShape shape{1, 4, 5};
  const Bytes bytes = random_bytes(20);
  for (const bool is_left : {true, false}) {
    Bytes expected(20, 66);
    for (std::size_t y = 0; y < 4; ++y) {
      for (std::size_t x = 0; x < 5; ++x) {
        const std::size_t source_x = is_left ? 4 - y : y + 1;
        const std::size_t source_y = is_left ? x : 4 - x;
        if (source_y < 4) expected[y * 5 + x] = bytes[source_y * 5 + source_x];
      }
    }
    const double degrees = is_left ? 90 : 270;
    EXPECT_EQ(made_by({RandomRotation{{degrees, degrees}, Interpolation::kNearest, false, 66}},
                      bytes, shape),
              expected)
        << degrees;
  }
}

TEST(RandomRotation, TurnsEachChannelAlike) {
  for (const std::int64_t channels : {2, 3, 4, 6}) {
    for (const std::int64_t width : {1, 5, 12}) {  // also narrower than a vector
      const ImageShape one{1, 9, width};
      const Bytes bytes = random_bytes(channels * one.elements());
      for (const Interpolation interpolation :
           {Interpolation::kNearest, Interpolation::kBilinear}) {
        const Augmentation list = {RandomRotation{{40, 40}, interpolation, false, 7}};
        Bytes expected;
        for (std::int64_t c = 0; c < channels; ++c) {
          const Bytes plane =
              made_by(list, ImageView::planar(bytes.data() + c * one.elements(), one));
          expected.insert(expected.end(), plane.begin(), plane.end());
        }
        EXPECT_EQ(made_by(list, bytes, {channels, 9, width}), expected)
            << channels << " x " << width;
      }
    }
  }
}

TEST(AugmentationPlan, RefusesImpossibleColoursAndRotations) {
  const Normalize normalize{{0, 0, 0}, {1, 1, 1}};
  const struct {
    Augmentation operators;
    ImageShape shape;
    const char* message;
  } cases[] = {
      {{RandomRotation{{15, -15}}, normalize},
       {3, 8, 8},
       "RandomRotation needs degrees from -36000 to 36000, the smaller first, got 15 and -15"},
      {{RandomRotation{std::nan("")}, normalize}, {3, 8, 8}, "RandomRotation needs degrees"},
      {{RandomRotation{10, Interpolation::kNearest, false, -1}, normalize},
       {3, 8, 8},
       "RandomRotation must have a fill from 0 to 255, got -1"},
      {{RandomRotation{10, Interpolation::kNearest, true}, normalize},
       {3, 8, 8},
       "the list needs a Resize to a height and width"},
      {{normalize, RandomRotation{10}}, {3, 8, 8}, "RandomRotation comes after Normalize"},
      {{ColorJitter{.brightness = -0.5}, normalize},
       {3, 8, 8},
       "ColorJitter needs brightness from 0 to 1000"},
      {{ColorJitter{.contrast = {-1, 1}}, normalize},
       {3, 8, 8},
       "ColorJitter needs contrast from 0"},
      {{ColorJitter{.saturation = {2, 1}}, normalize}, {3, 8, 8}, "the smaller first, got 2 and 1"},
      {{ColorJitter{.hue = 0.6}, normalize}, {3, 8, 8}, "ColorJitter needs hue from -0.5 to 0.5"},
      {{normalize, ColorJitter{}}, {3, 8, 8}, "ColorJitter comes after Normalize"},
      {{ColorJitter{}, normalize}, {4, 8, 8}, "ColorJitter needs images of 1 or 3 channels, got 4"},
      {{Grayscale{2}, normalize}, {3, 8, 8}, "Grayscale makes 1 or 3 channels, got 2"},
      {{Grayscale{}, normalize}, {3, 8, 8}, "3 means and 3 deviations, the images have 1 channels"},
      {{Grayscale{}, normalize}, {2, 8, 8}, "Grayscale needs images of 1 or 3 channels, got 2"},
      {{RandomGrayscale{1.5}, normalize}, {3, 8, 8}, "RandomGrayscale needs a probability"},
      {{RandomGrayscale{}, normalize},
       {2, 8, 8},
       "RandomGrayscale needs images of 1 or 3 channels"},
  };
  for (const auto& bad : cases) {
    EXPECT_THAT(message_of<ConfigError>([&] { data::AugmentationPlan(bad.operators, bad.shape); }),
                ::testing::AllOf(::testing::StartsWith("augmentation: "),
                                 ::testing::HasSubstr(bad.message)));
  }
}

// Without a Resize, an interleaved image is written in blocks of 16 pixels. The planar image is the
// reference.
TEST(AugmentationPlan, TheOrderOfBytesDoesNotMatterInAnyType) {
  for (const std::int64_t width : {15, 16, 17, 31, 48, 50}) {
    const ImageShape shape{3, 4, width};
    const Bytes bytes = random_bytes(shape.elements());
    Bytes interleaved(bytes.size());
    const std::size_t plane = bytes.size() / 3;
    for (std::size_t i = 0; i < bytes.size(); ++i)
      interleaved[i % plane * 3 + i / plane] = bytes[i];
    const Augmentation lists[] = {
        {}, {RandomHorizontalFlip{1}}, {Pad{3, 9}, RandomCrop{{5, static_cast<int>(width)}}}};
    for (Augmentation list : lists) {
      list.push_back(Normalize{{0.4, 0.5, 0.6}, {0.2, 0.25, 0.3}});
      for (const data::Layout layout : {data::Layout::kPlanar, data::Layout::kChannelsLast}) {
        for (const data::PixelType type :
             {data::PixelType::kFloat32, data::PixelType::kBFloat16, data::PixelType::kFloat16}) {
          const data::AugmentationPlan plan(list, shape, {.layout = layout, .type = type});
          const auto make = [&](const ImageView& image) {
            Bytes output(static_cast<std::size_t>(plan.output_bytes()));
            plan.apply(image, {.sample = 3}, output.data());
            return output;
          };
          EXPECT_EQ(make(ImageView::interleaved(interleaved.data(), shape)),
                    make(ImageView::planar(bytes.data(), shape)))
              << "width " << width;
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::testing_support
