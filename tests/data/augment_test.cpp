#include <lockstep/data/augment/native.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/core/philox.h>
#include <tests/support/data_bytes.h>
#include <tests/support/messages.h>

namespace lockstep::testing {
namespace {

// An image as the reference works on it: whole, once per operator, in doubles at the end.
struct Reference {
  ImageShape shape;
  std::vector<std::uint8_t> pixels;

  std::uint8_t at(std::int64_t c, std::int64_t y, std::int64_t x) const {
    if (y < 0 || y >= shape.height || x < 0 || x >= shape.width) return 0;
    return pixels[(c * shape.height + y) * shape.width + x];
  }
  // The image of `height` x `width` whose pixel (y, x) is this one's at source(y, x).
  template <class Source>
  Reference remap(std::int64_t height, std::int64_t width, const Source& source) const {
    Reference result{{shape.channels, height, width}, {}};
    for (std::int64_t c = 0; c < shape.channels; ++c) {
      for (std::int64_t y = 0; y < height; ++y) {
        for (std::int64_t x = 0; x < width; ++x) {
          const auto [source_y, source_x] = source(y, x);
          result.pixels.push_back(at(c, source_y, source_x));
        }
      }
    }
    return result;
  }
};

// torchvision's meaning of each operator, step by step. Draws as the description promises: each
// operator in the order of the list, the row of a crop before its column.
std::vector<double> reference(const Augmentation& operators, Reference image, const SampleKey& key,
                              Layout layout) {
  using Place = std::pair<std::int64_t, std::int64_t>;
  PhiloxStream random(key.seed, key.epoch, key.sample);
  std::vector<double> output;
  for (const Operator& op : operators) {
    const auto [channels, height, width] = image.shape;
    if (const auto* pad = std::get_if<Pad>(&op)) {
      const int n = pad->pixels;
      image = image.remap(height + 2 * n, width + 2 * n, [&](auto y, auto x) {
        return Place{y - n, x - n};
      });
    } else if (const auto* crop = std::get_if<RandomCrop>(&op)) {
      const auto top = random.below(static_cast<std::uint32_t>(height - crop->size + 1));
      const auto left = random.below(static_cast<std::uint32_t>(width - crop->size + 1));
      image = image.remap(crop->size, crop->size, [&](auto y, auto x) {
        return Place{y + top, x + left};
      });
    } else if (const auto* flip = std::get_if<RandomFlip>(&op)) {
      if (random.uniform() < flip->probability) {
        image = image.remap(height, width, [w = width](auto y, auto x) {
          return Place{y, w - 1 - x};
        });
      }
    } else {
      const auto& normalize = std::get<Normalize>(op);
      output.resize(image.pixels.size());
      for (std::size_t i = 0; i < output.size(); ++i) {
        const auto plane = static_cast<std::size_t>(height * width);
        const std::size_t c = i / plane;
        const double value = (image.pixels[i] / 255.0 - normalize.mean[c]) / normalize.std[c];
        const std::size_t to =
            layout == Layout::kPlanar ? i : i % plane * static_cast<std::size_t>(channels) + c;
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
    {"cifar", {3, 32, 32}, {Pad{4}, RandomCrop{32}, RandomFlip{}}},
    {"grey_crop", {1, 28, 28}, {Pad{2}, RandomCrop{28}, RandomFlip{}}},
    {"two_channels", {2, 9, 7}, {Pad{1}, RandomFlip{1.0}}},
    {"four_channels", {4, 5, 6}, {RandomCrop{5}}},
    {"crop_then_pad", {3, 16, 16}, {RandomCrop{9}, Pad{3}}},
    {"flip_then_crop", {3, 12, 20}, {RandomFlip{1.0}, RandomCrop{10}, Pad{1}, RandomFlip{0.3}}},
    {"two_crops", {1, 20, 20}, {Pad{3}, RandomCrop{20}, Pad{2}, RandomFlip{}, RandomCrop{17}}},
    {"mostly_padding", {3, 3, 3}, {Pad{20}, RandomCrop{5}, RandomFlip{}}},
    {"one_pixel", {3, 1, 1}, {RandomFlip{}, Pad{1}, RandomCrop{1}}},
};

class AugmentationCases : public ::testing::TestWithParam<Case> {};

TEST_P(AugmentationCases, EqualTheStepByStepReference) {
  const Case& c = GetParam();
  const std::string bytes = pattern(static_cast<std::size_t>(c.shape.elements()), 53);
  const Reference image{c.shape, {bytes.begin(), bytes.end()}};
  Augmentation operators = c.geometry;
  operators.push_back(normalize_for(c.shape.channels));
  for (const Layout layout : {Layout::kPlanar, Layout::kChannelsLast}) {
    const AugmentationPlan plan(operators, c.shape, layout);
    std::vector<float> output(plan.output_shape().elements());
    for (std::uint64_t sample = 0; sample < 200; ++sample) {
      const SampleKey key{.seed = 11, .epoch = 2, .sample = sample};
      std::fill(output.begin(), output.end(), NAN);
      plan.apply(image.pixels.data(), key, output.data());
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
  const AugmentationPlan plan({Pad{4}, RandomCrop{32}, RandomFlip{}, normalize_for(3)}, {3, 32, 32},
                              Layout::kPlanar);
  const std::string bytes = pattern(3072);
  const auto* image = reinterpret_cast<const std::uint8_t*>(bytes.data());
  const auto run = [&](const SampleKey& key) {
    std::vector<float> output(3072);
    plan.apply(image, key, output.data());
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
  // 81 places times 2 directions: two draws agree once in 162.
  EXPECT_GT(changed_by_seed, 90);
  EXPECT_GT(changed_by_epoch, 90);
  EXPECT_GT(changed_by_sample, 90);
}

TEST(AugmentationPlan, CropsAndFlipsAreEquallyLikely) {
  // The image's only white pixel says where the crop of 1 pixel was: nine places.
  const AugmentationPlan crop({RandomCrop{1}, Normalize{{0}, {1.0 / 255}}}, {1, 3, 3},
                              Layout::kPlanar);
  const std::uint8_t places[9] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  const AugmentationPlan flip({RandomFlip{0.25}, Normalize{{0}, {1.0 / 255}}}, {1, 1, 2},
                              Layout::kPlanar);
  const std::uint8_t sides[2] = {0, 1};
  constexpr int kDraws = 18'000;
  std::vector<int> counts(9);
  int flipped = 0;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    float output[2];
    crop.apply(places, {0, 0, i}, output);
    ++counts[std::lround(output[0])];
    flip.apply(sides, {0, 0, i}, output);
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
      {{}, "must end with Normalize"},
      {{RandomFlip{}}, "must end with Normalize"},
      {{normalize, RandomFlip{}}, "must end with Normalize"},
      {{normalize, normalize}, "Normalize must come once and last"},
      {{normalize_for(1)}, "1 means and 1 deviations, the images have 3 channels"},
      {{Normalize{{0, 0, 0}, {1, 1}}}, "3 means and 2 deviations"},
      {{Normalize{{0, 0, 0}, {1, 0, 1}}}, "positive deviations, got 0 and 0 for channel 1"},
      {{Normalize{{0, 0, nan}, {1, 1, 1}}}, "finite means"},
      {{Normalize{{0, 0, 0}, {1, 1, nan}}}, "positive deviations"},
      {{RandomCrop{33}, normalize}, "RandomCrop of 33 pixels does not fit into an image of 32x32"},
      {{Pad{4}, RandomCrop{41}, normalize}, "does not fit into an image of 40x40"},
      {{RandomCrop{0}, normalize}, "RandomCrop of 0 pixels"},
      {{RandomCrop{8}, RandomCrop{9}, normalize}, "does not fit into an image of 8x8"},
      {{Pad{-1}, normalize}, "Pad must be from 0"},
      {{RandomFlip{1.5}, normalize}, "probability from 0 to 1, got 1.5"},
      {{RandomFlip{nan}, normalize}, "probability from 0 to 1"},
  };
  for (const Bad& bad : cases) {
    EXPECT_THAT(message_of<ConfigError>([&] {
                  AugmentationPlan plan(bad.operators, {3, 32, 32}, Layout::kPlanar);
                }),
                ::testing::AllOf(::testing::StartsWith("augmentation: "),
                                 ::testing::HasSubstr(bad.message)));
  }
}

}  // namespace
}  // namespace lockstep::testing
