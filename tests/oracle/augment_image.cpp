// Our side of the comparison with torchvision.transforms: see augment_oracle.py.
//
// Usage: augment_image CASE HEIGHT WIDTH SAMPLES <PIXELS >NUMBERS
//
// Reads one image as HEIGHT x WIDTH x 3 bytes, applies the list of operators CASE once for each sample
// number, and writes the float32 results, CHW, in 0 to 255. What was drawn goes to standard error.
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include <lockstep/data/augment/choices.h>
#include <lockstep/data/augment/native.h>

namespace {

using namespace lockstep;

const Normalize kBytes{{0, 0, 0}, {1.0 / 255, 1.0 / 255, 1.0 / 255}};

const std::map<std::string, Augmentation> kCases = {
    {"resize_smaller", {Resize{{48, 64}}, kBytes}},
    {"resize_larger", {Resize{{211, 300}}, kBytes}},
    {"resize_one_axis", {Resize{{150, 77}}, kBytes}},
    {"resize_shorter_side", {Resize{96, true}, CenterCrop{{80, 96}}, kBytes}},
    {"center_crop", {CenterCrop{{133, 64}}, kBytes}},
    {"center_crop_of_less", {CenterCrop{{201, 100}}, kBytes}},
    {"pad", {Pad{3, 200}, kBytes}},
    {"flips", {RandomHorizontalFlip{1}, RandomVerticalFlip{1}, kBytes}},
    {"flip_pad_resize", {RandomHorizontalFlip{1}, Pad{5, 90}, Resize{{60, 61}}, kBytes}},
    {"resize_twice", {Resize{{100, 90}}, Resize{{33, 70}}, kBytes}},
    {"random_resized_crop", {RandomResizedCrop{{128, 128}}, kBytes}},
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5 || kCases.count(argv[1]) == 0) {
    std::cerr << "usage: augment_image CASE HEIGHT WIDTH SAMPLES\n";
    return 2;
  }
  const Augmentation& operators = kCases.at(argv[1]);
  const ImageShape shape{3, std::atoll(argv[2]), std::atoll(argv[3])};
  const std::string bytes{std::istreambuf_iterator<char>(std::cin), {}};
  if (bytes.size() != static_cast<std::size_t>(shape.elements())) {
    std::cerr << "got " << bytes.size() << " bytes, expected " << shape.elements() << "\n";
    return 2;
  }
  const auto* pixels = reinterpret_cast<const std::uint8_t*>(bytes.data());
  const AugmentationPlan plan(operators, shape);
  std::vector<float> output(static_cast<std::size_t>(plan.output_shape().elements()));
  for (std::uint64_t sample = 0; sample < std::strtoull(argv[4], nullptr, 10); ++sample) {
    plan.apply(ImageView::interleaved(pixels, shape), {.sample = sample}, output.data());
    std::cout.write(reinterpret_cast<const char*>(output.data()),
                    static_cast<std::streamsize>(output.size() * sizeof(float)));
    if (const auto* crop = std::get_if<RandomResizedCrop>(&operators.front())) {
      PhiloxStream random(0, 0, sample);
      const Box box = choose(*crop, shape.height, shape.width, random);
      std::cerr << box.top << " " << box.left << " " << box.height << " " << box.width << "\n";
    }
  }
}
