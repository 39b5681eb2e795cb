#include <lockstep/data/augment/choices.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include <tests/data/augment/augment_statistics.h>

namespace lockstep::testing_support {
namespace {

constexpr std::uint64_t kDraws = 6000;

// The results of `draw` for the random numbers of each sample of an epoch.
template <class Draw>
auto draws(const Draw& draw) {
  std::vector<decltype(draw(std::declval<PhiloxStream&>()))> result;
  for (std::uint64_t sample = 0; sample < kDraws; ++sample) {
    PhiloxStream random(17, 3, sample);
    result.push_back(draw(random));
  }
  return result;
}

// Operators that draw a box of one fixed size, in images of 12 x 10.
struct FixedBox {
  const char* name;
  std::int64_t height;
  std::int64_t width;
  std::function<ImageRegion(PhiloxStream&)> draw;
};

TEST(AugmentationChoices, EveryPlaceIsEquallyLikely) {
  // A box of 30 of the 120 pixels, once 6 wide and once 6 high.
  const RandomResizedCrop wide{.size = 8, .scale = {0.25, 0.25}, .ratio = {1.2, 1.2}};
  const RandomErasing high{.probability = 1, .scale = {0.25, 0.25}, .ratio = {1.2, 1.2}};
  const FixedBox cases[] = {
      {"RandomCrop", 8, 7,
       [](auto& random) { return data::choose(RandomCrop{{8, 7}}, 12, 10, random); }},
      {"RandomResizedCrop", 5, 6, [&](auto& random) { return data::choose(wide, 12, 10, random); }},
      {"RandomErasing", 6, 5,
       [&](auto& random) { return data::choose(high, 12, 10, random).value_or(ImageRegion{}); }},
  };
  for (const FixedBox& c : cases) {
    SCOPED_TRACE(c.name);
    const std::int64_t rows = 12 - c.height + 1;
    const std::int64_t columns = 10 - c.width + 1;
    std::vector<int> counts(static_cast<std::size_t>(rows * columns));
    for (const ImageRegion& box : draws(c.draw)) {
      ASSERT_EQ(box.height, c.height);
      ASSERT_EQ(box.width, c.width);
      ASSERT_TRUE(0 <= box.top && box.top < rows) << box.top;
      ASSERT_TRUE(0 <= box.left && box.left < columns) << box.left;
      ++counts[static_cast<std::size_t>(box.top * columns + box.left)];
    }
    EXPECT_LT(chi_square(counts), 1);
  }
}

TEST(AugmentationChoices, EveryCentreOfACutoutIsEquallyLikely) {
  // The box has `size` pixels from centre - size / 2 on, clipped to the image.
  for (const int size : {4, 5}) {
    SCOPED_TRACE(size);
    const auto center = [&](std::int64_t first, std::int64_t count) {
      return first == 0 ? count - size + size / 2 : first + size / 2;
    };
    const auto covers = [&](std::int64_t position, std::int64_t first, std::int64_t count,
                            std::int64_t length) {
      const std::int64_t begin = std::max<std::int64_t>(position - size / 2, 0);
      const std::int64_t end = std::min<std::int64_t>(position - size / 2 + size, length);
      return 0 <= position && position < length && first == begin && count == end - begin;
    };
    std::vector<int> counts(12 * 10);
    for (const ImageRegion& box :
         draws([&](auto& random) { return data::choose(Cutout{size}, 12, 10, random); })) {
      const std::int64_t y = center(box.top, box.height);
      const std::int64_t x = center(box.left, box.width);
      ASSERT_TRUE(covers(y, box.top, box.height, 12)) << box.top << " " << box.height;
      ASSERT_TRUE(covers(x, box.left, box.width, 10)) << box.left << " " << box.width;
      ++counts[static_cast<std::size_t>(y * 10 + x)];
    }
    EXPECT_LT(chi_square(counts), 1);
  }
}

constexpr std::int64_t kHeight = 4000;
constexpr std::int64_t kWidth = 3000;

// The shapes of boxes in an image of kHeight x kWidth, which is so large that rounding to whole
// pixels is negligible.
struct Shapes {
  std::vector<double> areas;
  std::vector<double> log_ratios;  // width / height
  std::vector<int> places = std::vector<int>(6 * 6);

  void add(const ImageRegion& box) {
    areas.push_back(static_cast<double>(box.height * box.width) /
                    static_cast<double>(kHeight * kWidth));
    log_ratios.push_back(
        std::log(static_cast<double>(box.width) / static_cast<double>(box.height)));
    const std::int64_t row = 6 * box.top / (kHeight - box.height + 1);
    const std::int64_t column = 6 * box.left / (kWidth - box.width + 1);
    ++places.at(static_cast<std::size_t>(row * 6 + column));
  }
};

TEST(AugmentationChoices, AreaRatioAndPlaceOfACropAreUniform) {
  const RandomResizedCrop crop{.size = 8, .scale = {0.1, 0.4}, .ratio = {0.75, 1.5}};
  Shapes shapes;
  for (const ImageRegion& box :
       draws([&](auto& random) { return data::choose(crop, kHeight, kWidth, random); })) {
    shapes.add(box);
  }
  EXPECT_LT(distance_from_uniform(shapes.areas, 0.1, 0.4), 1);
  EXPECT_LT(distance_from_uniform(shapes.log_ratios, std::log(0.75), std::log(1.5)), 1);
  EXPECT_LT(chi_square(shapes.places), 1);
}

TEST(AugmentationChoices, ACropThatFitsNowhereIsTheLargestCentralOne) {
  for (const ImageRegion& box : draws([](auto& random) {
         return data::choose(RandomResizedCrop{.size = 8, .scale = {0.9, 1}, .ratio = {1, 1}}, 10,
                             1000, random);
       })) {
    EXPECT_EQ(box, (ImageRegion{0, 495, 10, 10}));
  }
}

TEST(AugmentationChoices, AreaRatioAndPlaceOfAnErasureAreUniform) {
  // Its ratio is height / width, unlike that of a crop.
  const RandomErasing erasing{.probability = 0.3, .scale = {0.02, 0.2}, .ratio = {0.5, 3}};
  Shapes shapes;
  for (const auto& box :
       draws([&](auto& random) { return data::choose(erasing, kHeight, kWidth, random); })) {
    if (box) shapes.add(*box);
  }
  const auto count = static_cast<double>(shapes.areas.size());
  EXPECT_NEAR(count, 0.3 * kDraws, 4 * std::sqrt(0.3 * 0.7 * kDraws));
  EXPECT_LT(distance_from_uniform(shapes.areas, 0.02, 0.2), 1);
  EXPECT_LT(distance_from_uniform(shapes.log_ratios, -std::log(3.0), std::log(2.0)), 1);
  EXPECT_LT(chi_square(shapes.places), 1);
}

TEST(AugmentationChoices, FlipsAndGraysComeAsOftenAsTheyShould) {
  const auto share = [](const auto& op) {
    double count = 0;
    for (const bool is_chosen : draws([&](auto& random) { return data::choose(op, random); }))
      count += is_chosen;
    return count / kDraws;
  };
  const auto tolerance = [](double p) { return 4 * std::sqrt(p * (1 - p) / kDraws); };
  EXPECT_NEAR(share(RandomHorizontalFlip{}), 0.5, tolerance(0.5));
  EXPECT_NEAR(share(RandomVerticalFlip{0.2}), 0.2, tolerance(0.2));
  EXPECT_NEAR(share(RandomGrayscale{}), 0.1, tolerance(0.1));
  EXPECT_EQ(share(RandomGrayscale{1}), 1);
}

TEST(AugmentationChoices, TheLongerSideIsRoundedDownAndFitsIntoAnInt) {
  struct Case {
    std::int64_t height, width;
    int side;
    ImageSize expected;
  };
  const Case cases[] = {{8, 21, 4, {4, 10}},
                        {21, 8, 4, {10, 4}},
                        {5, 5, 9, {9, 9}},
                        {1, 65'535, 65'536, {65'536, 1 << 30}},
                        {65'535, 1, 65'536, {1 << 30, 65'536}}};
  for (const Case& c : cases)
    EXPECT_EQ(data::resized(Resize{c.side, true}, c.height, c.width), c.expected);
}

TEST(AugmentationChoices, AnglesAreUniform) {
  const auto angles = [](const RandomRotation& rotation) {
    return draws([&](auto& random) { return data::choose(rotation, random); });
  };
  EXPECT_LT(distance_from_uniform(angles(RandomRotation{30}), -30, 30), 1);
  EXPECT_LT(distance_from_uniform(angles(RandomRotation{{10, 350}}), 10, 350), 1);
  for (const double angle : angles(RandomRotation{{45, 45}})) EXPECT_EQ(angle, 45);
}

TEST(AugmentationChoices, ANumberStandsForTorchvisionsRange) {
  EXPECT_EQ(FactorRange(0.25), FactorRange(0.75, 1.25));
  EXPECT_EQ(FactorRange(3), FactorRange(0, 4));
  EXPECT_EQ(SymmetricRange(0.5), SymmetricRange(-0.5, 0.5));
  EXPECT_FALSE(data::changes(FactorRange(0.0)));
  EXPECT_TRUE(data::changes(FactorRange(1, 1.5)));
  EXPECT_FALSE(data::changes(SymmetricRange(0.0)));
}

TEST(AugmentationChoices, ColoursChangeByUniformFactorsInEveryOrder) {
  const ColorJitter jitter{
      .brightness = 0.4, .contrast = {0.9, 3}, .saturation = 2, .hue = {-0.1, 0.3}};
  std::array<std::vector<double>, 4> factors;
  std::map<std::vector<data::ColorProperty>, int> orders;
  for (const data::ColorSteps& steps :
       draws([&](auto& random) { return data::choose(jitter, random); })) {
    ASSERT_EQ(steps.count, 4U);
    std::vector<data::ColorProperty> order;
    for (const data::ColorStep& step : steps) {
      order.push_back(step.property);
      factors[static_cast<std::size_t>(step.property)].push_back(step.factor);
    }
    ++orders[order];
  }
  EXPECT_LT(distance_from_uniform(factors[0], 0.6, 1.4), 1);
  EXPECT_LT(distance_from_uniform(factors[1], 0.9, 3), 1);
  EXPECT_LT(distance_from_uniform(factors[2], 0, 3), 1);
  EXPECT_LT(distance_from_uniform(factors[3], -0.1, 0.3), 1);
  std::vector<int> counts;
  for (const auto& [order, count] : orders) counts.push_back(count);
  ASSERT_EQ(counts.size(), 24U) << "orders of four";
  EXPECT_LT(chi_square(counts), 1);
}

TEST(AugmentationChoices, ColoursThatStayTakeNoNumber) {
  // The order takes three random numbers, then each property that is changed takes one.
  PhiloxStream expected(17, 3, 5);
  for (int i = 0; i < 3; ++i) expected.next();
  const double first = 0.5 + static_cast<double>(expected.uniform());
  const double second = -0.25 + 0.5 * static_cast<double>(expected.uniform());
  PhiloxStream random(17, 3, 5);
  const data::ColorSteps steps = data::choose(ColorJitter{.contrast = 0.5, .hue = 0.25}, random);
  ASSERT_EQ(steps.count, 2U);
  for (const data::ColorStep& step : steps) {
    const bool is_contrast = step.property == data::ColorProperty::kContrast;
    EXPECT_TRUE(is_contrast || step.property == data::ColorProperty::kHue);
    EXPECT_DOUBLE_EQ(step.factor, is_contrast ? first : second);
  }
  EXPECT_EQ(random.next(), expected.next());
  PhiloxStream untouched(17, 3, 5);
  EXPECT_EQ(data::choose(ColorJitter{}, untouched).count, 0U);
}

}  // namespace
}  // namespace lockstep::testing_support
