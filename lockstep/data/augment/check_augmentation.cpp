#include <lockstep/data/augment/check_augmentation.h>

#include <algorithm>
#include <cmath>
#include <string>

#include <lockstep/core/error.h>
#include <lockstep/data/augment/choices.h>

namespace lockstep::data {
namespace {

constexpr int kMaximumPixels = 1 << 16;
constexpr std::int64_t kMaximumBytes = std::int64_t{1} << 28;
constexpr double kMaximumDegrees = 36'000;
constexpr double kMaximumFactor = 1000;

template <class... Values>
[[noreturn]] void reject(const Values&... values) {
  throw ConfigError(str("augmentation: ", values...));
}

void check_probability(const char* name, double probability) {
  if (!(probability >= 0 && probability <= 1)) {
    reject(name, " needs a probability from 0 to 1, got ", probability);
  }
}

void check_size(const char* name, ImageSize size) {
  if (std::min(size.height, size.width) < 1 || std::max(size.height, size.width) > kMaximumPixels) {
    reject(name, " needs a size from 1 to ", kMaximumPixels, " pixels, got ", size.height, "x",
           size.width);
  }
}

void check_range(const char* name, const char* what, const std::array<double, 2>& range,
                 double maximum) {
  if (!(range[0] > 0 && range[0] <= range[1] && range[1] <= maximum)) {
    reject(name, " needs a ", what, " from above 0 to ", maximum, ", the smaller first, got ",
           range[0], " and ", range[1]);
  }
}

template <class Range>
void check_interval(const char* name, const char* what, const Range& range, double minimum,
                    double maximum) {
  if (!(minimum <= range.low && range.low <= range.high && range.high <= maximum)) {
    reject(name, " needs ", what, " from ", minimum, " to ", maximum, ", the smaller first, got ",
           range.low, " and ", range.high);
  }
}

// Follows the size of an image through the list.
class AugmentationCheck {
 public:
  explicit AugmentationCheck(const ImageShape& input) : shape_(input) {}

  void operator()(const Pad& pad) {
    geometry("Pad");
    if (pad.pixels < 0 || pad.pixels > kMaximumPixels) {
      reject("Pad must be from 0 to ", kMaximumPixels, " pixels, got ", pad.pixels);
    }
    if (pad.fill < 0 || pad.fill > 255) {
      reject("Pad must have a fill from 0 to 255, got ", pad.fill);
    }
    if (is_known())
      become({static_cast<int>(shape_.height) + 2 * pad.pixels,
              static_cast<int>(shape_.width) + 2 * pad.pixels});
  }
  void operator()(const RandomCrop& crop) {
    geometry("RandomCrop");
    check_size("RandomCrop", crop.size);
    if (is_known()) check_fits(crop, shape_.height, shape_.width);
    become(crop.size);
  }
  void operator()(const CenterCrop& crop) {
    geometry("CenterCrop");
    check_size("CenterCrop", crop.size);
    become(crop.size);
  }
  void operator()(const Resize& resize) {
    geometry("Resize");
    check_size("Resize", resize.shorter_side ? ImageSize(resize.size.height) : resize.size);
    if (!resize.shorter_side) return become(resize.size);
    if (is_known()) become(resized(resize, shape_.height, shape_.width));
  }
  void operator()(const RandomResizedCrop& crop) {
    geometry("RandomResizedCrop");
    check_size("RandomResizedCrop", crop.size);
    check_range("RandomResizedCrop", "scale", crop.scale, 1);
    check_range("RandomResizedCrop", "ratio", crop.ratio, 1000);
    become(crop.size);
  }
  void operator()(const RandomHorizontalFlip& flip) {
    geometry("RandomHorizontalFlip");
    check_probability("RandomHorizontalFlip", flip.probability);
  }
  void operator()(const RandomVerticalFlip& flip) {
    geometry("RandomVerticalFlip");
    check_probability("RandomVerticalFlip", flip.probability);
  }
  void operator()(const RandomRotation& rotation) {
    geometry("RandomRotation");
    check_interval("RandomRotation", "degrees", rotation.degrees, -kMaximumDegrees,
                   kMaximumDegrees);
    if (rotation.fill < 0 || rotation.fill > 255) {
      reject("RandomRotation must have a fill from 0 to 255, got ", rotation.fill);
    }
    if (rotation.expand) shape_.height = shape_.width = 0;
  }
  void operator()(const ColorJitter& jitter) {
    color("ColorJitter");
    check_interval("ColorJitter", "brightness", jitter.brightness, 0, kMaximumFactor);
    check_interval("ColorJitter", "contrast", jitter.contrast, 0, kMaximumFactor);
    check_interval("ColorJitter", "saturation", jitter.saturation, 0, kMaximumFactor);
    check_interval("ColorJitter", "hue", jitter.hue, -0.5, 0.5);
  }
  void operator()(const Grayscale& grayscale) {
    color("Grayscale");
    if (grayscale.num_output_channels != 1 && grayscale.num_output_channels != 3) {
      reject("Grayscale makes 1 or 3 channels, got ", grayscale.num_output_channels);
    }
    shape_.channels = grayscale.num_output_channels;
  }
  void operator()(const RandomGrayscale& grayscale) {
    color("RandomGrayscale");
    check_probability("RandomGrayscale", grayscale.probability);
  }
  void operator()(const Cutout& cutout) {
    if (cutout.size < 1 || cutout.size > kMaximumPixels) {
      reject("Cutout must be from 1 to ", kMaximumPixels, " pixels, got ", cutout.size);
    }
  }
  void operator()(const RandomErasing& erasing) {
    check_probability("RandomErasing", erasing.probability);
    check_range("RandomErasing", "scale", erasing.scale, 1);
    check_range("RandomErasing", "ratio", erasing.ratio, 1000);
    if (!std::isfinite(erasing.value)) reject("RandomErasing needs a finite value");
    if (!normalized_ && (erasing.value < 0 || erasing.value > 1)) {
      reject("RandomErasing before Normalize needs a value from 0 (black) to 1 (white), got ",
             erasing.value);
    }
  }
  void operator()(const Normalize& normalize) {
    if (normalized_) reject("Normalize must come once");
    normalized_ = true;
    const auto count = static_cast<std::size_t>(shape_.channels);
    if (normalize.mean.size() != count || normalize.std.size() != count) {
      reject("Normalize has ", normalize.mean.size(), " means and ", normalize.std.size(),
             " deviations, the images have ", shape_.channels, " channels");
    }
    for (std::size_t c = 0; c < count; ++c) {
      const double mean = normalize.mean[c];
      const double deviation = normalize.std[c];
      if (!std::isfinite(mean) || !std::isfinite(deviation) || deviation <= 0) {
        reject("Normalize needs finite means and positive deviations, got ", mean, " and ",
               deviation, " for channel ", c);
      }
    }
  }

  ImageShape result() const {
    if (!normalized_) reject("the list must have a Normalize, after its geometry");
    if (!is_known()) {
      reject(
          "the images have sizes of their own, so the list needs a Resize to a height and width, "
          "RandomResizedCrop, RandomCrop or CenterCrop to make batches of them");
    }
    return shape_;
  }

 private:
  bool is_known() const { return shape_.height > 0; }
  void become(ImageSize size) {
    check_size("what the list makes of an image", size);
    shape_.height = size.height;
    shape_.width = size.width;
  }
  void geometry(const char* name) const {
    if (normalized_) {
      reject(name, " comes after Normalize, where only Cutout and RandomErasing may be");
    }
  }

  void color(const char* name) const {
    geometry(name);
    if (shape_.channels != 1 && shape_.channels != 3) {
      reject(name, " needs images of 1 or 3 channels, got ", shape_.channels);
    }
  }

  ImageShape shape_;
  bool normalized_ = false;
};

std::string text_of(const ImageShape& shape) {
  return str(shape.channels, "x", shape.height, "x", shape.width);
}

}  // namespace

ImageShape check_augmentation(const Augmentation& operators, const ImageShape& input) {
  AugmentationCheck check(input);
  for (const Operator& op : operators) std::visit(check, op);
  return check.result();
}

void check_fits(const RandomCrop& crop, std::int64_t height, std::int64_t width,
                const NamedImage& image) {
  if (crop.size.height > height || crop.size.width > width) {
    reject("RandomCrop of ", crop.size.height, "x", crop.size.width,
           " pixels does not fit into an image of ", height, "x", width,
           image.file.empty() ? "" : str(" (", image.file, ")"));
  }
}

void check_declared(const ImageShape& image, const ImageShape& declared, std::uint64_t sample) {
  const bool own_sizes = declared.height == 0;
  if (own_sizes ? image.channels == declared.channels : image == declared) return;
  throw DataError(str("augmentation: got an image of ", text_of(image), " in a data set of ",
                      own_sizes ? str(declared.channels, "-channel") : text_of(declared),
                      " images (sample ", sample, ")"));
}

void check_made(const char* operation, const ImageShape& from, const ImageShape& made,
                const NamedImage& image) {
  if (std::max(made.height, made.width) <= kMaximumPixels && made.elements() <= kMaximumBytes)
    return;
  throw DataError(
      str(image.file.empty() ? str("augmentation: image ", image.sample) : std::string(image.file),
          ": ", operation, " an image of ", from.height, "x", from.width, " makes ", text_of(made),
          ", expected at most ", kMaximumPixels, " pixels a side and ", kMaximumBytes,
          " bytes; crop it first, or remove it"));
}

}  // namespace lockstep::data
