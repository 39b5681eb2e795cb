#include <lockstep/data/augment/augmentation_text.h>

#include <array>
#include <variant>
#include <vector>

#include <lockstep/core/strings.h>
#include <lockstep/data/augment/operator_name.h>

namespace lockstep::data {
namespace {

std::string text_of_size(ImageSize size) { return str(size.height, 'x', size.width); }

template <class Range>
std::string text_of_range(const char* name, const Range& range) {
  return str(name, range.low, " to ", range.high);
}

std::string text_of_shape(const std::array<double, 2>& scale, const std::array<double, 2>& ratio) {
  return str("scale ", scale[0], " to ", scale[1], ", ratio ", ratio[0], " to ", ratio[1]);
}

// The arguments of an operator as text.
struct TextOfArguments {
  std::string operator()(const Pad& pad) const { return str(pad.pixels, ", fill ", pad.fill); }
  std::string operator()(const RandomCrop& crop) const { return text_of_size(crop.size); }
  std::string operator()(const CenterCrop& crop) const { return text_of_size(crop.size); }
  std::string operator()(const Resize& resize) const {
    if (resize.shorter_side) return str("shorter side ", resize.size.height);
    return text_of_size(resize.size);
  }
  std::string operator()(const RandomResizedCrop& crop) const {
    return text_of_size(crop.size) + ", " + text_of_shape(crop.scale, crop.ratio);
  }
  std::string operator()(const RandomHorizontalFlip& flip) const { return str(flip.probability); }
  std::string operator()(const RandomVerticalFlip& flip) const { return str(flip.probability); }
  std::string operator()(const RandomRotation& rotation) const {
    const bool is_nearest = rotation.interpolation == Interpolation::kNearest;
    return str(text_of_range("", rotation.degrees), is_nearest ? ", nearest" : ", bilinear",
               rotation.expand ? ", expand" : "", ", fill ", rotation.fill);
  }
  std::string operator()(const ColorJitter& jitter) const {
    const std::vector<std::string> parts = {text_of_range("brightness ", jitter.brightness),
                                            text_of_range("contrast ", jitter.contrast),
                                            text_of_range("saturation ", jitter.saturation),
                                            text_of_range("hue ", jitter.hue)};
    return join(parts);
  }
  std::string operator()(const Grayscale& grey) const { return str(grey.num_output_channels); }
  std::string operator()(const RandomGrayscale& grey) const { return str(grey.probability); }
  std::string operator()(const Cutout& cutout) const { return str(cutout.size); }
  std::string operator()(const RandomErasing& erasing) const {
    return str(erasing.probability, ", ", text_of_shape(erasing.scale, erasing.ratio), ", value ",
               erasing.value);
  }
  std::string operator()(const Normalize& normalize) const {
    return str("mean ", join(normalize.mean, " "), ", std ", join(normalize.std, " "));
  }
};

}  // namespace

std::string augmentation_text(const Augmentation& operators) {
  std::vector<std::string> texts;
  for (const Operator& each : operators) {
    texts.push_back(operator_name(each) + "(" + std::visit(TextOfArguments(), each) + ")");
  }
  return join(texts);
}

}  // namespace lockstep::data
