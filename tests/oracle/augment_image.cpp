// Our side of the comparison with torchvision.transforms: see augment_oracle.py.
//
// Usage: augment_image CASE CHANNELS HEIGHT WIDTH SAMPLES <PIXELS >NUMBERS
//
// Reads one image as HEIGHT x WIDTH x CHANNELS bytes, applies the list of operators CASE once for each
// sample number, and writes the float32 results, CHW, in 0 to 255. What was drawn for the first operator
// goes to standard error, a line for a sample.
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

const std::map<std::string, Augmentation> kCases = {
    {"resize_smaller", {Resize{{48, 64}}}},
    {"resize_larger", {Resize{{211, 300}}}},
    {"resize_one_axis", {Resize{{150, 77}}}},
    {"resize_shorter_side", {Resize{96, true}, CenterCrop{{80, 96}}}},
    {"center_crop", {CenterCrop{{133, 64}}}},
    {"center_crop_of_less", {CenterCrop{{201, 100}}}},
    {"pad", {Pad{3, 200}}},
    {"flips", {RandomHorizontalFlip{1}, RandomVerticalFlip{1}}},
    {"flip_pad_resize", {RandomHorizontalFlip{1}, Pad{5, 90}, Resize{{60, 61}}}},
    {"resize_twice", {Resize{{100, 90}}, Resize{{33, 70}}}},
    {"random_resized_crop", {RandomResizedCrop{{128, 128}}}},
    {"grayscale", {Grayscale{}}},
    {"grayscale_3", {Pad{2, 77}, Grayscale{3}, RandomHorizontalFlip{1}, Resize{{70, 80}}}},
    {"random_grayscale", {RandomGrayscale{1}}},
    {"brightness", {ColorJitter{.brightness = {1.7, 1.7}}}},
    {"contrast_of_padded", {Pad{9, 250}, CenterCrop{{100, 141}}, ColorJitter{.contrast = {0.3, 0.3}}}},
    {"saturation_of_crop", {CenterCrop{{31, 45}}, ColorJitter{.saturation = {2.5, 2.5}}, Pad{3, 9}}},
    {"hue", {ColorJitter{.hue = {-0.31, -0.31}}}},
    {"hue_by_nothing", {ColorJitter{.hue = {0.001, 0.001}}}},
    {"color_jitter", {ColorJitter{0.5, 0.8, 0.9, 0.5}}},
    {"rotate_0", {RandomRotation{{720, 720}}}},
    {"rotate_90", {RandomRotation{{90, 90}, Interpolation::kBilinear}}},
    {"rotate_180", {RandomRotation{{-180, -180}}}},
    {"rotate_90_expand", {RandomRotation{{90, 90}, Interpolation::kNearest, true}, Resize{{50, 60}}}},
    {"rotate_30_expand",
     {RandomRotation{{30, 30}, Interpolation::kBilinear, true, 33}, CenterCrop{{190, 200}}}},
    {"rotate_flipped", {RandomHorizontalFlip{1}, CenterCrop{{99, 120}}, RandomRotation{{-71.5, -71.5}}}},
    {"random_rotation", {RandomRotation{180, Interpolation::kNearest, false, 200}}},
    {"random_rotation_bilinear", {RandomRotation{45, Interpolation::kBilinear}}},
};

// Bytes as they are, for the channels that the list leaves.
Normalize bytes(const Augmentation& operators, std::int64_t channels) {
  for (const Operator& op : operators) {
    if (const auto* gray = std::get_if<Grayscale>(&op)) channels = gray->num_output_channels;
  }
  const auto count = static_cast<std::size_t>(channels);
  return {std::vector<double>(count, 0), std::vector<double>(count, 1.0 / 255)};
}

void print_drawn(const Operator& op, const ImageShape& shape, std::uint64_t sample) {
  PhiloxStream random(0, 0, sample);
  if (const auto* crop = std::get_if<RandomResizedCrop>(&op)) {
    const Box box = choose(*crop, shape.height, shape.width, random);
    std::cerr << box.top << " " << box.left << " " << box.height << " " << box.width << "\n";
  } else if (const auto* rotation = std::get_if<RandomRotation>(&op)) {
    std::cerr << choose(*rotation, random) << "\n";
  } else if (const auto* jitter = std::get_if<ColorJitter>(&op)) {
    for (const ColorStep& step : choose(*jitter, random)) {
      std::cerr << static_cast<int>(step.property) << " " << step.factor << " ";
    }
    std::cerr << "\n";
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6 || kCases.count(argv[1]) == 0) {
    std::cerr << "usage: augment_image CASE CHANNELS HEIGHT WIDTH SAMPLES\n";
    return 2;
  }
  const ImageShape shape{std::atoll(argv[2]), std::atoll(argv[3]), std::atoll(argv[4])};
  Augmentation operators = kCases.at(argv[1]);
  operators.push_back(bytes(operators, shape.channels));
  const std::string input{std::istreambuf_iterator<char>(std::cin), {}};
  if (input.size() != static_cast<std::size_t>(shape.elements())) {
    std::cerr << "got " << input.size() << " bytes, expected " << shape.elements() << "\n";
    return 2;
  }
  const auto* pixels = reinterpret_cast<const std::uint8_t*>(input.data());
  const AugmentationPlan plan(operators, shape);
  std::vector<float> output(static_cast<std::size_t>(plan.output_shape().elements()));
  std::cerr.precision(17);
  for (std::uint64_t sample = 0; sample < std::strtoull(argv[5], nullptr, 10); ++sample) {
    plan.apply(ImageView::interleaved(pixels, shape), {.sample = sample}, output.data());
    std::cout.write(reinterpret_cast<const char*>(output.data()),
                    static_cast<std::streamsize>(output.size() * sizeof(float)));
    print_drawn(operators.front(), shape, sample);
  }
}
