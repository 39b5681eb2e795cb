#include <lockstep/data/augment/native.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/core/philox.h>
#include <lockstep/data/augment/check_augmentation.h>
#include <lockstep/data/augment/operator_name.h>
#include <lockstep/data/augment/resample.h>
#include <tests/support/data_bytes.h>
#include <tests/support/messages.h>

namespace lockstep::testing_support {
namespace {

// An image in the reference implementation: each operator makes a whole image, at the end in
// doubles.
struct Reference {
  ImageShape shape;
  std::vector<std::uint8_t> pixels;

  std::uint8_t at(std::int64_t c, std::int64_t y, std::int64_t x, std::uint8_t fill) const {
    if (y < 0 || y >= shape.height || x < 0 || x >= shape.width) return fill;
    return pixels[(c * shape.height + y) * shape.width + x];
  }
  // Returns the image of `height` x `width` whose pixel (y, x) is this image's pixel at source(y,
  // x).
  template <class Source>
  Reference remap(std::int64_t height, std::int64_t width, const Source& source,
                  std::uint8_t fill = 0) const {
    Reference result{{shape.channels, height, width}, {}};
    for (std::int64_t c = 0; c < shape.channels; ++c) {
      for (std::int64_t y = 0; y < height; ++y) {
        for (std::int64_t x = 0; x < width; ++x) {
          const auto [source_y, source_x] = source(y, x);
          result.pixels.push_back(at(c, source_y, source_x, fill));
        }
      }
    }
    return result;
  }
};

std::int64_t half_to_even(std::int64_t number) {
  return number % 2 == 0 ? number / 2 : (number / 2 + 1) / 2 * 2;
}

// Each operator as torchvision defines it, step by step. Numbers are drawn in the documented order:
// operators in the order of the list, the row of a crop before its column.
std::vector<double> reference(const Augmentation& operators, Reference image, const SampleKey& key,
                              data::Layout layout) {
  using Position = std::pair<std::int64_t, std::int64_t>;
  PhiloxStream random(key.seed, key.epoch, key.sample);
  std::vector<double> output;
  for (const Operator& op : operators) {
    const auto [channels, height, width] = image.shape;
    if (const auto* pad = std::get_if<Pad>(&op)) {
      const int n = pad->pixels;
      image = image.remap(
          height + 2 * n, width + 2 * n, [&](auto y, auto x) { return Position{y - n, x - n}; },
          static_cast<std::uint8_t>(pad->fill));
    } else if (const auto* crop = std::get_if<RandomCrop>(&op)) {
      const ImageSize size = crop->size;
      const auto top = random.below(static_cast<std::uint32_t>(height - size.height + 1));
      const auto left = random.below(static_cast<std::uint32_t>(width - size.width + 1));
      image = image.remap(size.height, size.width,
                          [&](auto y, auto x) { return Position{y + top, x + left}; });
    } else if (const auto* center = std::get_if<CenterCrop>(&op)) {
      const auto [rows, columns] = center->size;
      // An image that is too small gets the smaller half of its padding in front.
      const std::int64_t top = rows > height ? -((rows - height) / 2) : half_to_even(height - rows);
      const std::int64_t left =
          columns > width ? -((columns - width) / 2) : half_to_even(width - columns);
      image =
          image.remap(rows, columns, [&](auto y, auto x) { return Position{y + top, x + left}; });
    } else if (const auto* turn = std::get_if<RandomVerticalFlip>(&op)) {
      if (random.uniform() < turn->probability) {
        image = image.remap(height, width,
                            [h = height](auto y, auto x) { return Position{h - 1 - y, x}; });
      }
    } else if (const auto* cutout = std::get_if<Cutout>(&op)) {
      const auto first_row = random.below(static_cast<std::uint32_t>(height)) - cutout->size / 2;
      const auto first_column = random.below(static_cast<std::uint32_t>(width)) - cutout->size / 2;
      const auto inside = [n = cutout->size](std::int64_t at, std::int32_t first) {
        return at >= first && at < first + n;
      };
      for (std::int64_t c = 0; c < channels; ++c) {
        for (std::int64_t y = 0; y < height; ++y) {
          for (std::int64_t x = 0; x < width; ++x) {
            if (!inside(y, static_cast<std::int32_t>(first_row)) ||
                !inside(x, static_cast<std::int32_t>(first_column))) {
              continue;
            }
            const auto planar = static_cast<std::size_t>((c * height + y) * width + x);
            if (output.empty()) {
              image.pixels[planar] = 0;
            } else {
              output[layout == data::Layout::kPlanar
                         ? planar
                         : static_cast<std::size_t>((y * width + x) * channels + c)] = 0;
            }
          }
        }
      }
    } else if (const auto* flip = std::get_if<RandomHorizontalFlip>(&op)) {
      if (random.uniform() < flip->probability) {
        image = image.remap(height, width,
                            [w = width](auto y, auto x) { return Position{y, w - 1 - x}; });
      }
    } else {
      const auto& normalize = std::get<Normalize>(op);
      output.resize(image.pixels.size());
      for (std::size_t i = 0; i < output.size(); ++i) {
        const auto plane = static_cast<std::size_t>(height * width);
        const std::size_t c = i / plane;
        const double value = (image.pixels[i] / 255.0 - normalize.mean[c]) / normalize.std[c];
        const std::size_t to = layout == data::Layout::kPlanar
                                   ? i
                                   : i % plane * static_cast<std::size_t>(channels) + c;
        output[to] = value;
      }
    }
  }
  return output;
}

Normalize normalize_for(std::int64_t channels) {
  Normalize result;
  for (std::int64_t c = 0; c < channels; ++c) {
    result.mean.push_back(0.4 + 0.05 * static_cast<double>(c));
    result.std.push_back(0.2 + 0.1 * static_cast<double>(c));
  }
  return result;
}

struct Case {
  const char* name;
  ImageShape shape;
  Augmentation geometry;
};

const Case kCases[] = {
    {"mnist", {1, 28, 28}, {}},
    {"colour", {3, 32, 32}, {}},
    {"cifar", {3, 32, 32}, {Pad{4}, RandomCrop{32}, RandomHorizontalFlip{}}},
    {"grey_crop", {1, 28, 28}, {Pad{2}, RandomCrop{28}, RandomHorizontalFlip{}}},
    {"two_channels", {2, 9, 7}, {Pad{1}, RandomHorizontalFlip{1.0}}},
    {"four_channels", {4, 5, 6}, {RandomCrop{5}}},
    {"crop_then_pad", {3, 16, 16}, {RandomCrop{9}, Pad{3}}},
    {"flip_then_crop",
     {3, 12, 20},
     {RandomHorizontalFlip{1.0}, RandomCrop{10}, Pad{1}, RandomHorizontalFlip{0.3}}},
    {"two_crops",
     {1, 20, 20},
     {Pad{3}, RandomCrop{20}, Pad{2}, RandomHorizontalFlip{}, RandomCrop{17}}},
    {"mostly_padding", {3, 3, 3}, {Pad{20}, RandomCrop{5}, RandomHorizontalFlip{}}},
    {"upside_down", {3, 6, 33}, {RandomVerticalFlip{}, Pad{1}, RandomHorizontalFlip{}}},
    {"wide_crop", {1, 40, 40}, {RandomCrop{{3, 37}}}},
    {"center", {3, 9, 12}, {CenterCrop{{6, 5}}}},
    {"center_of_less", {3, 4, 20}, {Pad{1, 7}, CenterCrop{{11, 17}}}},
    {"two_fills", {3, 5, 5}, {Pad{2, 9}, Pad{3, 200}, RandomCrop{8}}},
    {"fill_beside_columns", {3, 4, 5}, {CenterCrop{{4, 7}}, Pad{1, 200}}},
    {"fill_beside_rows", {3, 4, 5}, {CenterCrop{{6, 5}}, Pad{1, 200}}},
    {"fill_after_the_end", {3, 4, 4}, {CenterCrop{5}, Pad{1, 200}}},
    {"fill_before_the_start",
     {3, 4, 4},
     {CenterCrop{5}, RandomHorizontalFlip{1.0}, RandomVerticalFlip{1.0}, Pad{1, 200}}},
    {"cutout", {3, 32, 32}, {Pad{4}, RandomCrop{32}, RandomHorizontalFlip{}, Cutout{8}}},
    {"cutout_moved", {3, 20, 24}, {Cutout{7}, RandomHorizontalFlip{}, RandomCrop{17}, Pad{1, 50}}},
    {"one_pixel", {3, 1, 1}, {RandomHorizontalFlip{}, Pad{1}, RandomCrop{1}}},
};

class AugmentationCases : public ::testing::TestWithParam<Case> {};

TEST_P(AugmentationCases, EqualTheStepByStepReference) {
  const Case& c = GetParam();
  const std::string bytes = pattern(static_cast<std::size_t>(c.shape.elements()), 53);
  const Reference image{c.shape, {bytes.begin(), bytes.end()}};
  Augmentation operators = c.geometry;
  operators.push_back(normalize_for(c.shape.channels));
  if (c.shape.height > 4) operators.push_back(Cutout{4});
  std::vector<std::uint8_t> interleaved(image.pixels.size());
  const std::size_t plane = image.pixels.size() / static_cast<std::size_t>(c.shape.channels);
  for (std::size_t i = 0; i < image.pixels.size(); ++i) {
    interleaved[i % plane * static_cast<std::size_t>(c.shape.channels) + i / plane] =
        image.pixels[i];
  }
  for (const data::Layout layout : {data::Layout::kPlanar, data::Layout::kChannelsLast}) {
    const data::AugmentationPlan plan(operators, c.shape, {.layout = layout});
    std::vector<float> from_interleaved(plan.output_shape().elements());
    std::vector<float> output(plan.output_shape().elements());
    for (std::uint64_t sample = 0; sample < 200; ++sample) {
      const SampleKey key{.seed = 11, .epoch = 2, .sample = sample};
      std::fill(output.begin(), output.end(), NAN);
      plan.apply(ImageView::planar(image.pixels.data(), c.shape), key, output.data());
      plan.apply(ImageView::interleaved(interleaved.data(), c.shape), key, from_interleaved.data());
      ASSERT_EQ(from_interleaved, output) << "the order of bytes in memory must not matter";
      const std::vector<double> expected = reference(operators, image, key, layout);
      ASSERT_EQ(expected.size(), output.size());
      for (std::size_t i = 0; i < output.size(); ++i) {
        ASSERT_NEAR(output[i], expected[i], 2e-6) << "sample " << sample << ", element " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Lists, AugmentationCases, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(AugmentationPlan, DependsOnSeedEpochAndSampleOnly) {
  const data::AugmentationPlan plan(
      {Pad{4}, RandomCrop{32}, RandomHorizontalFlip{}, normalize_for(3)}, {3, 32, 32});
  const std::string bytes = pattern(3072);
  const auto* image = reinterpret_cast<const std::uint8_t*>(bytes.data());
  const auto run = [&](const SampleKey& key) {
    std::vector<float> output(3072);
    plan.apply(ImageView::planar(image, {3, 32, 32}), key, output.data());
    return output;
  };
  int changed_by_seed = 0;
  int changed_by_epoch = 0;
  int changed_by_sample = 0;
  for (std::uint64_t i = 0; i < 100; ++i) {
    const auto base = run({1, 1, i});
    EXPECT_EQ(run({1, 1, i}), base);
    changed_by_seed += run({2, 1, i}) != base ? 1 : 0;
    changed_by_epoch += run({1, 2, i}) != base ? 1 : 0;
    changed_by_sample += run({1, 1, i + 1000}) != base ? 1 : 0;
  }
  // 81 places times 2 directions: two draws agree with a probability of 1 in 162.
  EXPECT_GT(changed_by_seed, 90);
  EXPECT_GT(changed_by_epoch, 90);
  EXPECT_GT(changed_by_sample, 90);
}

TEST(AugmentationPlan, CropsAndFlipsAreEquallyLikely) {
  // The image's only white pixel shows which of nine places the crop of 1 pixel was taken from.
  const data::AugmentationPlan crop({RandomCrop{1}, Normalize{{0}, {1.0 / 255}}}, {1, 3, 3});
  const std::uint8_t places[9] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  const data::AugmentationPlan flip({RandomHorizontalFlip{0.25}, Normalize{{0}, {1.0 / 255}}},
                                    {1, 1, 2});
  const std::uint8_t sides[2] = {0, 1};
  constexpr int kDraws = 18'000;
  std::vector<int> counts(9);
  int flipped = 0;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    float output[2];
    crop.apply(ImageView::planar(places, {1, 3, 3}), {0, 0, i}, output);
    ++counts[std::lround(output[0])];
    flip.apply(ImageView::planar(sides, {1, 1, 2}), {0, 0, i}, output);
    flipped += output[0] > 0.5F ? 1 : 0;
  }
  // Five standard deviations of a binomial count.
  for (int count : counts) EXPECT_NEAR(count, kDraws / 9, 5 * std::sqrt(kDraws * 8.0 / 81));
  EXPECT_NEAR(flipped, kDraws / 4, 5 * std::sqrt(kDraws * 3.0 / 16));
}

TEST(AugmentationPlan, RefusesImpossibleLists) {
  const Normalize normalize = normalize_for(3);
  const double nan = std::nan("");
  struct Bad {
    Augmentation operators;
    const char* message;
  };
  const Bad cases[] = {
      {{}, "must have a Normalize"},
      {{RandomHorizontalFlip{}}, "must have a Normalize"},
      {{normalize, RandomHorizontalFlip{}}, "RandomHorizontalFlip comes after Normalize"},
      {{normalize, normalize}, "Normalize must come once"},
      {{normalize_for(1)}, "Normalize has 1 means and 1 deviations, the images have 3 channels"},
      {{Normalize{{0, 0, 0}, {1, 1}}}, "3 means and 2 deviations"},
      {{Normalize{{0, 0, 0}, {1, 0, 1}}}, "positive deviations, got 0 and 0 for channel 1"},
      {{Normalize{{0, 0, nan}, {1, 1, 1}}}, "finite means"},
      {{Normalize{{0, 0, 0}, {1, 1, nan}}}, "positive deviations"},
      {{RandomCrop{33}, normalize},
       "RandomCrop of 33x33 pixels does not fit into an image of 32x32"},
      {{Pad{4}, RandomCrop{41}, normalize}, "does not fit into an image of 40x40"},
      {{RandomCrop{0}, normalize}, "RandomCrop needs a size from 1"},
      {{RandomCrop{8}, RandomCrop{9}, normalize}, "does not fit into an image of 8x8"},
      {{Pad{-1}, normalize}, "Pad must be from 0 to 65536 pixels, got -1"},
      {{Pad{1, 256}, normalize}, "Pad must have a fill from 0 to 255, got 256"},
      {{CenterCrop{{4, 0}}, normalize}, "CenterCrop needs a size from 1 to 65536 pixels, got 4x0"},
      {{Resize{0}, normalize}, "Resize needs a size from 1"},
      {{RandomResizedCrop{8, {0.5, 0.2}}, normalize}, "scale from above 0 to 1, the smaller first"},
      {{RandomResizedCrop{8, {0.5, 1}, {0, 1}}, normalize}, "RandomResizedCrop needs a ratio"},
      {{RandomVerticalFlip{-0.1}, normalize}, "RandomVerticalFlip needs a probability"},
      {{Cutout{0}, normalize}, "Cutout must be from 1 to 65536 pixels, got 0"},
      {{RandomErasing{2}, normalize}, "RandomErasing needs a probability"},
      {{RandomErasing{1, {0.1, 0.2}, {1, 1}, nan}, normalize}, "needs a finite value"},
      {{Resize{65'536}, Pad{1}, normalize},
       "what the list makes of an image needs a size from 1 to 65536 pixels, got 65538x65538"},
      {{RandomErasing{1, {0.1, 0.2}, {1, 1}, 2}, normalize}, "from 0 (black) to 1 (white), got 2"},
      {{RandomHorizontalFlip{1.5}, normalize}, "probability from 0 to 1, got 1.5"},
      {{RandomHorizontalFlip{nan}, normalize}, "probability from 0 to 1"},
  };
  for (const Bad& bad : cases) {
    EXPECT_THAT(
        message_of<ConfigError>([&] { data::AugmentationPlan plan(bad.operators, {3, 32, 32}); }),
        ::testing::AllOf(::testing::StartsWith("augmentation: "),
                         ::testing::HasSubstr(bad.message)));
  }
}

// The last value that each range holds, and one beyond it.
TEST(AugmentationPlan, ReachesToTheEndsOfItsRanges) {
  const auto rotation = [](int fill) {
    return RandomRotation{10, Interpolation::kNearest, false, fill};
  };
  const std::pair<Operator, Operator> cases[] = {
      {Pad{32'752}, Pad{32'753}},  // makes 65,536 pixels of 32
      {Pad{1, 255}, Pad{1, -1}},
      {Pad{0}, Pad{-1}},
      {RandomCrop{32}, RandomCrop{{32, 33}}},
      {RandomCrop{32}, RandomCrop{{33, 32}}},
      {CenterCrop{65'536}, CenterCrop{65'537}},
      {CenterCrop{1}, CenterCrop{{0, 1}}},
      {Resize{65'536}, Resize{{1, 65'537}}},
      {RandomResizedCrop{8, {0.5, 1}}, RandomResizedCrop{8, {0.5, 1.01}}},
      {RandomResizedCrop{8, {0.5, 0.5}}, RandomResizedCrop{8, {0, 0.5}}},
      {RandomResizedCrop{8, {1, 1}, {1, 1000}}, RandomResizedCrop{8, {1, 1}, {1, 1000.5}}},
      {RandomHorizontalFlip{0}, RandomHorizontalFlip{-0.01}},
      {RandomVerticalFlip{1}, RandomVerticalFlip{1.01}},
      {RandomGrayscale{1}, RandomGrayscale{-0.01}},
      {RandomRotation{36'000}, RandomRotation{36'000.5}},
      {RandomRotation{{-36'000, 0}}, RandomRotation{{-36'000.5, 0}}},
      {rotation(255), rotation(256)},
      {rotation(0), rotation(-1)},
      {ColorJitter{.brightness = {0, 1000}}, ColorJitter{.brightness = {0, 1000.5}}},
      {ColorJitter{.contrast = {0, 1000}}, ColorJitter{.contrast = {0, 1000.5}}},
      {ColorJitter{.saturation = {0, 1000}}, ColorJitter{.saturation = {0, 1000.5}}},
      {ColorJitter{.brightness = {1, 1}}, ColorJitter{.brightness = {-0.01, 1}}},
      {ColorJitter{.contrast = {1, 1}}, ColorJitter{.contrast = {-0.01, 1}}},
      {ColorJitter{.saturation = {1, 1}}, ColorJitter{.saturation = {-0.01, 1}}},
      {ColorJitter{.hue = 0.5}, ColorJitter{.hue = {-0.51, 0}}},
      {ColorJitter{.hue = {0.5, 0.5}}, ColorJitter{.hue = {0, 0.51}}},
      {Cutout{65'536}, Cutout{65'537}},
      {RandomErasing{1}, RandomErasing{-0.01}},
      {RandomErasing{0}, RandomErasing{1.01}},
      {RandomErasing{1, {0.5, 1}}, RandomErasing{1, {0.5, 1.01}}},
      {RandomErasing{1, {0.5, 0.5}}, RandomErasing{1, {0, 0.5}}},
      {RandomErasing{1, {0.1, 0.2}, {1, 1}}, RandomErasing{1, {0.1, 0.2}, {0, 1}}},
      {RandomErasing{1, {0.1, 0.2}, {1, 1000}}, RandomErasing{1, {0.1, 0.2}, {1, 1000.5}}},
      {RandomErasing{1, {0.1, 0.2}, {1, 1}, 1}, RandomErasing{1, {0.1, 0.2}, {1, 1}, -0.01}},
      {RandomErasing{1, {0.1, 0.2}, {1, 1}, 0}, RandomErasing{1, {0.1, 0.2}, {1, 1}, 1.01}},
  };
  const Normalize normalize = normalize_for(3);
  for (const auto& [last, beyond] : cases) {
    EXPECT_NO_THROW(data::check_augmentation({last, normalize}, {3, 32, 32}))
        << data::operator_name(last);
    EXPECT_THROW(data::check_augmentation({beyond, normalize}, {3, 32, 32}), ConfigError)
        << data::operator_name(beyond);
  }
  const RandomErasing bright{.value = 5}, infinite{.value = HUGE_VAL};
  EXPECT_NO_THROW(data::check_augmentation({normalize, bright}, {3, 32, 32}));
  EXPECT_THROW(data::check_augmentation({normalize, infinite}, {3, 32, 32}), ConfigError);
}

TEST(AugmentationPlan, ImagesOfTheirOwnSizesNeedOneForBatches) {
  const Normalize normalize = normalize_for(3);
  const ImageShape any{3, 0, 0};
  EXPECT_THAT(
      message_of<ConfigError>([&] { data::AugmentationPlan({Resize{32, true}, normalize}, any); }),
      ::testing::HasSubstr("the list needs a Resize to a height and width"));
  const data::AugmentationPlan plan({RandomCrop{{6, 5}}, normalize}, any);
  EXPECT_EQ(plan.output_shape(), (ImageShape{3, 6, 5}));
  const std::string bytes = pattern(3 * 5 * 20);
  std::vector<float> output(90);
  EXPECT_THAT(message_of<ConfigError>([&] {
                plan.apply(ImageView::planar(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                                             {3, 5, 20}),
                           {}, output.data());
              }),
              ::testing::HasSubstr("RandomCrop of 6x5 pixels does not fit into an image of 5x20"));
}

TEST(AugmentationPlan, NamesTheFileOfAnImageThatDoesNotFit) {
  const data::NamedImage file{.sample = 7, .file = "a/b.png"}, memory{.sample = 7};
  const RandomCrop crop{{6, 5}};
  const auto refusal_of_crop = [&](std::int64_t height, std::int64_t width,
                                   const data::NamedImage& image) {
    return message_of<ConfigError>([&] { data::check_fits(crop, height, width, image); });
  };
  EXPECT_NO_THROW(data::check_fits(crop, 6, 5, file));
  const std::string refused = "augmentation: RandomCrop of 6x5 pixels does not fit into an image ";
  EXPECT_EQ(refusal_of_crop(5, 20, memory), refused + "of 5x20");
  EXPECT_EQ(refusal_of_crop(20, 4, file), refused + "of 20x4 (a/b.png)");

  const auto refusal = [&](const ImageShape& made, const data::NamedImage& image) {
    return message_of<DataError>([&] { data::check_made("padding", {1, 2, 3}, made, image); });
  };
  EXPECT_NO_THROW(data::check_made("padding", {1, 2, 3}, {1, 65536, 4096}, file)) << "256 MiB";
  EXPECT_NO_THROW(data::check_made("padding", {1, 2, 3}, {4, 1024, 65536}, file));
  EXPECT_THAT(refusal({1, 65536, 4097}, memory),
              ::testing::StartsWith(
                  "augmentation: image 7: padding an image of 2x3 makes 1x65536x4097, expected"));
  EXPECT_THAT(refusal({1, 1, 65537}, file),
              ::testing::StartsWith("a/b.png: padding an image of 2x3 makes 1x1x65537, expected"));
  EXPECT_THAT(refusal({1, 65537, 1}, file), ::testing::HasSubstr("makes 1x65537x1"));
}

// The source returns an image of a shape other than declared, for which the output has no room.
TEST(AugmentationPlan, RefusesAnImageOfAnotherShapeThanDeclared) {
  const std::vector<std::uint8_t> pixels(3 * 64 * 64);
  struct Case {
    ImageShape declared;
    ImageShape image;
    const char* message;
  };
  const Case cases[] = {
      {{1, 32, 32}, {3, 64, 64}, "an image of 3x64x64 in a data set of 1x32x32 images (sample 7)"},
      {{3, 32, 32}, {3, 64, 64}, "an image of 3x64x64 in a data set of 3x32x32 images"},
      {{3, 32, 32}, {3, 32, 31}, "an image of 3x32x31 in a data set of 3x32x32 images"},
      {{1, 0, 0}, {3, 40, 40}, "an image of 3x40x40 in a data set of 1-channel images"},
  };
  for (const Case& c : cases) {
    Augmentation operators = {normalize_for(c.declared.channels)};
    if (c.declared.height == 0) operators.insert(operators.begin(), RandomCrop{32});
    const data::AugmentationPlan plan(operators, c.declared);
    std::vector<float> output(static_cast<std::size_t>(plan.output_shape().elements()));
    ImageReader reader;
    reader.show(ImageView::planar(pixels.data(), c.image));
    EXPECT_THAT(message_of<DataError>([&] { plan.apply(reader, {.sample = 7}, output.data()); }),
                ::testing::HasSubstr(c.message));
  }
}

TEST(AugmentationPlan, RefusesToMakeAnImageHuge) {
  const std::vector<std::uint8_t> pixels(40'000);
  struct Case {
    Augmentation operators;
    ImageShape image;
    const char* message;
  };
  const Case cases[] = {
      {{Resize{2, true}}, {1, 1, 40'000}, "resizing an image of 1x40000 makes 1x2x80000, expected"},
      {{Resize{60'000, true}}, {1, 1, 2}, "resizing an image of 1x2 makes 1x60000x120000"},
      {{Resize{60'000}}, {1, 1, 2}, "resizing an image of 1x2 makes 1x60000x60000"},
      {{RandomRotation{{45, 45}, Interpolation::kNearest, true}},
       {1, 1, 40'000},
       "rotating an image of 1x40000 makes 1x282"},
      {{Pad{60'000}, RandomRotation{{45, 45}}},
       {1, 1, 2},
       "augmentation: image 5: padding an image of 1x2 makes 1x120001"},
  };
  for (const Case& c : cases) {
    Augmentation operators = c.operators;
    operators.insert(operators.end(), {CenterCrop{1}, normalize_for(1)});
    const data::AugmentationPlan plan(operators, {1, 0, 0});
    float output = 0;
    EXPECT_THAT(message_of<DataError>([&] {
                  plan.apply(ImageView::planar(pixels.data(), c.image), {.sample = 5}, &output);
                }),
                ::testing::HasSubstr(c.message));
  }
}

TEST(AugmentationPlan, ErasesWithinTheImage) {
  // All pixels are 1, and the erased ones are -1.
  const data::AugmentationPlan plan(
      {Normalize{{0}, {1}}, RandomErasing{0.5, {0.02, 0.33}, {0.3, 3.3}, -1}}, {1, 32, 48});
  const std::vector<std::uint8_t> white(32 * 48, 255);
  constexpr int kDraws = 4000;
  int erased = 0;
  double area = 0;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    std::vector<float> output(white.size());
    plan.apply(ImageView::planar(white.data(), {1, 32, 48}), {0, 0, i}, output.data());
    const auto count = std::count(output.begin(), output.end(), -1.0F);
    ASSERT_EQ(count + std::count(output.begin(), output.end(), 1.0F), 32 * 48);
    erased += count > 0 ? 1 : 0;
    area += static_cast<double>(count) / (32 * 48);
  }
  EXPECT_NEAR(erased, kDraws / 2, 5 * std::sqrt(kDraws / 4.0));
  EXPECT_NEAR(area / erased, 0.175, 0.01)
      << "uniform from 0.02 to 0.33, hardly one too long to fit";
}

TEST(AugmentationPlan, HalvesAreRoundedToNearestEven) {
  // All byte values, with a scale that needs the full precision of a float.
  std::vector<std::uint8_t> bytes(256);
  std::iota(bytes.begin(), bytes.end(), 0);
  const Augmentation operators = {Normalize{{0.4914}, {0.2470}}};
  const ImageShape shape{1, 1, 256};
  const auto image = ImageView::planar(bytes.data(), shape);
  std::vector<float> exact(256);
  data::AugmentationPlan(operators, shape).apply(image, {}, exact.data());
  std::vector<std::uint16_t> halves(256);
  data::AugmentationPlan(operators, shape, {.type = data::PixelType::kBFloat16})
      .apply(image, {}, halves.data());
  for (std::size_t i = 0; i < halves.size(); ++i) {
    const float value = std::bit_cast<float>(static_cast<std::uint32_t>(halves[i]) << 16);
    // 8 bits of mantissa, including the hidden one: half a step at the value's power of two.
    EXPECT_LE(std::abs(value - exact[i]), std::exp2(std::ilogb(exact[i]) - 8)) << i;
  }
  EXPECT_NE(halves[1], halves[255]);
}

// For the first occurrence in an epoch, the stream depends on (seed, epoch, sample) alone.
TEST(SampleKey, GivesEveryOccurrenceNumbersOfItsOwn) {
  const auto numbers = [](PhiloxStream stream) {
    std::vector<std::uint32_t> drawn(9);
    for (std::uint32_t& number : drawn) number = stream.next();
    return drawn;
  };
  const SampleKey key{.seed = 5, .epoch = 2, .sample = 77};
  EXPECT_EQ(numbers(key.stream()), numbers(PhiloxStream(5, 2, 77)));
  std::set<std::vector<std::uint32_t>> all;
  for (std::uint64_t sample = 0; sample < 20; ++sample) {
    for (std::uint32_t occurrence = 0; occurrence < 20; ++occurrence) {
      all.insert(numbers(SampleKey{5, 2, sample, occurrence}.stream()));
    }
  }
  EXPECT_EQ(all.size(), 400U);
}

// Pillow's definition of a resize, one pixel at a time: widths first, rounded to bytes.
std::vector<std::uint8_t> resized_slowly(const std::vector<std::uint8_t>& pixels, std::int64_t rows,
                                         std::int64_t from, std::int64_t to, bool columns) {
  const std::int64_t size = static_cast<std::int64_t>(pixels.size());
  const std::int64_t other = columns ? size / from : rows;
  std::vector<std::uint8_t> result(static_cast<std::size_t>(size / from * to));
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double radius = std::max(scale, 1.0);
  for (std::int64_t line = 0; line < size / from; ++line) {
    for (std::int64_t x = 0; x < to; ++x) {
      double sum = 0, weights = 0;
      for (std::int64_t i = 0; i < from; ++i) {
        const double center = (static_cast<double>(x) + 0.5) * scale;
        const double weight = 1 - std::abs(static_cast<double>(i) + 0.5 - center) / radius;
        if (weight <= 0) continue;
        // Along columns, consecutive pixels of a line are `other` pixels apart in a plane of from x
        // other.
        const std::int64_t at =
            columns ? line * from + i : line / other * other * from + i * other + line % other;
        sum += weight * pixels[static_cast<std::size_t>(at)];
        weights += weight;
      }
      const std::int64_t to_at =
          columns ? line * to + x : line / other * other * to + x * other + line % other;
      result[static_cast<std::size_t>(to_at)] = static_cast<std::uint8_t>(sum / weights + 0.5);
    }
  }
  return result;
}

TEST(Resampler, EqualsOnePixelAtATime) {
  data::Resampler resampler;  // shared by all cases: leftovers in its memory must not show
  const std::int64_t sizes[][4] = {{33, 47, 16, 16}, {16, 16, 33, 47}, {5, 100, 7, 3},
                                   {1, 1, 4, 5},     {40, 3, 1, 1},    {64, 64, 64, 31},
                                   {64, 64, 20, 64}};
  for (const std::int64_t channels : {1, 3, 4}) {
    for (const auto& [height, width, new_height, new_width] : sizes) {
      const ImageShape shape{channels, height, width};
      const std::string bytes = pattern(static_cast<std::size_t>(shape.elements()), 101);
      const std::vector<std::uint8_t> planar(bytes.begin(), bytes.end());
      std::vector<std::uint8_t> interleaved(planar.size());
      const auto plane = static_cast<std::size_t>(height * width);
      for (std::size_t i = 0; i < planar.size(); ++i) {
        interleaved[i % plane * static_cast<std::size_t>(channels) + i / plane] = planar[i];
      }
      const auto expected = resized_slowly(resized_slowly(planar, 0, width, new_width, true),
                                           new_width, height, new_height, false);
      for (const ImageView& view : {ImageView::planar(planar.data(), shape),
                                    ImageView::interleaved(interleaved.data(), shape)}) {
        const ImageView image = resampler.resize(view, new_height, new_width);
        EXPECT_EQ(image.shape, (ImageShape{channels, new_height, new_width}));
        int unequal = 0;  // ties, which weights in fixed point decide differently
        for (std::size_t i = 0; i < expected.size(); ++i) {
          ASSERT_NEAR(image.pixels[i], expected[i], 1)
              << channels << " x " << height << "x" << width << " to " << new_height << "x"
              << new_width;
          unequal += image.pixels[i] != expected[i] ? 1 : 0;
        }
        EXPECT_LE(unequal, static_cast<int>(expected.size() / 20));
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::testing_support
