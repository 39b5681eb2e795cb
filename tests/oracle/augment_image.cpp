// Lockstep's side of the comparison with torchvision.transforms: see augment_oracle.py.
//
// Usage: augment_image CASE CHANNELS HEIGHT WIDTH SAMPLES <PIXELS >NUMBERS
//
// Reads one image as HEIGHT x WIDTH x CHANNELS bytes, applies the list of operators CASE once for
// each sample number, and writes the results as float32, CHW, normalised if the list has a
// Normalize, otherwise in 0 to 255. Prints what the operators drew to standard error, one line per
// sample.
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include <lockstep/data/augment/choices.h>
#include <lockstep/data/augment/native.h>

namespace {

using namespace lockstep;

// ImageNet's mean and standard deviation. A one-channel image uses the first of each.
const Normalize kNormalize{{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};

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
    {"random_crop", {RandomCrop{{77, 120}}}},
    {"random_resized_crop", {RandomResizedCrop{{128, 128}}}},
    {"random_resized_crop_of_ratio", {RandomResizedCrop{{90, 128}, {0.2, 0.2}, {1.3, 1.3}}}},
    {"grayscale", {Grayscale{}}},
    {"grayscale_3", {Pad{2, 77}, Grayscale{3}, RandomHorizontalFlip{1}, Resize{{70, 80}}}},
    {"random_grayscale", {RandomGrayscale{1}}},
    {"brightness", {ColorJitter{.brightness = {1.7, 1.7}}}},
    {"contrast_of_padded",
     {Pad{9, 250}, CenterCrop{{100, 141}}, ColorJitter{.contrast = {0.3, 0.3}}}},
    {"saturation_of_crop",
     {CenterCrop{{31, 45}}, ColorJitter{.saturation = {2.5, 2.5}}, Pad{3, 9}}},
    {"hue", {ColorJitter{.hue = {-0.31, -0.31}}}},
    {"hue_by_nothing", {ColorJitter{.hue = {0.001, 0.001}}}},
    {"color_jitter", {ColorJitter{0.5, 0.8, 0.9, 0.5}}},
    {"rotate_0", {RandomRotation{{720, 720}}}},
    {"rotate_90", {RandomRotation{{90, 90}, Interpolation::kBilinear}}},
    {"rotate_180", {RandomRotation{{-180, -180}}}},
    {"rotate_90_expand",
     {RandomRotation{{90, 90}, Interpolation::kNearest, true}, Resize{{50, 60}}}},
    {"rotate_30_expand",
     {RandomRotation{{30, 30}, Interpolation::kBilinear, true, 33}, CenterCrop{{190, 200}}}},
    {"rotate_flipped",
     {RandomHorizontalFlip{1}, CenterCrop{{99, 120}}, RandomRotation{{-71.5, -71.5}}}},
    {"random_rotation", {RandomRotation{180, Interpolation::kNearest, false, 200}}},
    {"random_rotation_bilinear", {RandomRotation{45, Interpolation::kBilinear}}},
    {"normalize", {kNormalize}},
    {"cutout", {Cutout{40}, kNormalize}},
    {"normalize_cutout", {kNormalize, Cutout{41}}},
    {"random_erasing",
     {RandomErasing{.probability = 0.8, .ratio = {0.3, 0.9}, .value = 0.4}, kNormalize}},
    {"random_erasing_flip",
     {RandomErasing{.probability = 1, .value = 0.2}, RandomVerticalFlip{1}, kNormalize}},
    {"normalize_random_erasing",
     {kNormalize,
      RandomErasing{.probability = 1, .scale = {0.2, 0.2}, .ratio = {2.5, 2.5}, .value = -1.3}}},
    {"recipe",
     {Pad{4, 30}, RandomCrop{{138, 149}}, RandomHorizontalFlip{}, kNormalize, RandomErasing{}}},
};

// Adds the Normalize for this number of channels. Without one in the list, bytes stay as they are.
Augmentation normalized(Augmentation operators, std::int64_t channels) {
  for (const Operator& op : operators) {
    if (const auto* gray = std::get_if<Grayscale>(&op)) channels = gray->num_output_channels;
  }
  const auto count = static_cast<std::size_t>(channels);
  for (Operator& op : operators) {
    if (auto* normalize = std::get_if<Normalize>(&op)) {
      normalize->mean.resize(count);
      normalize->std.resize(count);
      return operators;
    }
  }
  operators.push_back(
      Normalize{std::vector<double>(count, 0), std::vector<double>(count, 1.0 / 255)});
  return operators;
}

// Everything that the operators of a list draw for one image, in order. "No erasure" is an empty
// box.
struct Draws {
  std::int64_t height;
  std::int64_t width;
  PhiloxStream random;

  void operator()(const Pad& pad) { become(height + 2 * pad.pixels, width + 2 * pad.pixels); }
  void operator()(const RandomCrop& crop) {
    print(data::choose(crop, height, width, random));
    become(crop.size.height, crop.size.width);
  }
  void operator()(const CenterCrop& crop) { become(crop.size.height, crop.size.width); }
  void operator()(const Resize& resize) {
    const ImageSize size = data::resized(resize, height, width);
    become(size.height, size.width);
  }
  void operator()(const RandomResizedCrop& crop) {
    print(data::choose(crop, height, width, random));
    become(crop.size.height, crop.size.width);
  }
  void operator()(const RandomHorizontalFlip& flip) {
    std::cerr << data::choose(flip, random) << " ";
  }
  void operator()(const RandomVerticalFlip& flip) {
    std::cerr << data::choose(flip, random) << " ";
  }
  void operator()(const RandomRotation& rotation) {
    std::cerr << data::choose(rotation, random) << " ";
  }
  void operator()(const ColorJitter& jitter) {
    for (const data::ColorStep& step : data::choose(jitter, random)) {
      std::cerr << static_cast<int>(step.property) << " " << step.factor << " ";
    }
  }
  void operator()(const Grayscale&) {}
  void operator()(const RandomGrayscale& grayscale) {
    std::cerr << data::choose(grayscale, random) << " ";
  }
  void operator()(const Cutout& cutout) { print(data::choose(cutout, height, width, random)); }
  void operator()(const RandomErasing& erasing) {
    print(data::choose(erasing, height, width, random).value_or(ImageRegion{}));
  }
  void operator()(const Normalize&) {}

  void become(std::int64_t new_height, std::int64_t new_width) {
    height = new_height;
    width = new_width;
  }
  static void print(const ImageRegion& box) {
    std::cerr << box.top << " " << box.left << " " << box.height << " " << box.width << " ";
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6 || kCases.count(argv[1]) == 0) {
    std::cerr << "usage: augment_image CASE CHANNELS HEIGHT WIDTH SAMPLES\n";
    return 2;
  }
  const ImageShape shape{std::atoll(argv[2]), std::atoll(argv[3]), std::atoll(argv[4])};
  const Augmentation operators = normalized(kCases.at(argv[1]), shape.channels);
  const std::string input{std::istreambuf_iterator<char>(std::cin), {}};
  if (input.size() != static_cast<std::size_t>(shape.elements())) {
    std::cerr << "got " << input.size() << " bytes, expected " << shape.elements() << "\n";
    return 2;
  }
  const auto* pixels = reinterpret_cast<const std::uint8_t*>(input.data());
  const data::AugmentationPlan plan(operators, shape);
  std::vector<float> output(static_cast<std::size_t>(plan.output_shape().elements()));
  std::cerr.precision(17);
  for (std::uint64_t sample = 0; sample < std::strtoull(argv[5], nullptr, 10); ++sample) {
    plan.apply(ImageView::interleaved(pixels, shape), {.sample = sample}, output.data());
    std::cout.write(reinterpret_cast<const char*>(output.data()),
                    static_cast<std::streamsize>(output.size() * sizeof(float)));
    Draws draws{shape.height, shape.width, PhiloxStream(0, 0, sample)};
    for (const Operator& op : operators) std::visit(draws, op);
    std::cerr << "\n";
  }
}
