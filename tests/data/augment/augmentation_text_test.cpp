#include <lockstep/data/augment/augmentation_text.h>

#include <string>
#include <utility>

#include <gtest/gtest.h>

namespace lockstep::data {
namespace {

TEST(AugmentationText, HasEachArgumentOfAnOperator) {
  const std::pair<Operator, const char*> cases[] = {
      {Pad{4, 7}, "Pad(4, fill 7)"},
      {RandomCrop{{32, 24}}, "RandomCrop(32x24)"},
      {CenterCrop{16}, "CenterCrop(16x16)"},
      {Resize{{20, 30}}, "Resize(20x30)"},
      {Resize{{20, 30}, /*shorter_side=*/true}, "Resize(shorter side 20)"},
      {RandomResizedCrop{{8, 9}, {0.25, 0.5}, {0.75, 1.5}},
       "RandomResizedCrop(8x9, scale 0.25 to 0.5, ratio 0.75 to 1.5)"},
      {RandomHorizontalFlip{0.25}, "RandomHorizontalFlip(0.25)"},
      {RandomVerticalFlip{0.75}, "RandomVerticalFlip(0.75)"},
      {RandomRotation{15.0}, "RandomRotation(-15 to 15, nearest, fill 0)"},
      {RandomRotation{{10, 20}, Interpolation::kBilinear, /*expand=*/true, 3},
       "RandomRotation(10 to 20, bilinear, expand, fill 3)"},
      {ColorJitter{0.5, {0.25, 2}, {0.75, 3}, 0.125},
       "ColorJitter(brightness 0.5 to 1.5, contrast 0.25 to 2, saturation 0.75 to 3, hue -0.125 to "
       "0.125)"},
      {Grayscale{3}, "Grayscale(3)"},
      {RandomGrayscale{0.5}, "RandomGrayscale(0.5)"},
      {Cutout{12}, "Cutout(12)"},
      {RandomErasing{0.5, {0.125, 0.25}, {0.5, 2}, 6},
       "RandomErasing(0.5, scale 0.125 to 0.25, ratio 0.5 to 2, value 6)"},
      {Normalize{{0.5, 0.25}, {0.125, 1}}, "Normalize(mean 0.5 0.25, std 0.125 1)"}};
  for (const auto& [op, text] : cases) EXPECT_EQ(augmentation_text({op}), text);
}

TEST(AugmentationText, HasTheOperatorsInTheirOrder) {
  EXPECT_EQ(augmentation_text({}), "");
  EXPECT_EQ(augmentation_text({Cutout{2}, CenterCrop{3}}), "Cutout(2), CenterCrop(3x3)");
}

}  // namespace
}  // namespace lockstep::data
