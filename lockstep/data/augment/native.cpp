#include <lockstep/data/augment/native.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/core/philox.h>
#include <lockstep/data/augment/axis.h>
#include <lockstep/data/augment/channel_scales.h>
#include <lockstep/data/augment/check_augmentation.h>
#include <lockstep/data/augment/choices.h>
#include <lockstep/data/augment/recolor.h>
#include <lockstep/data/augment/resample.h>
#include <lockstep/data/augment/rotate.h>

namespace lockstep::data {
namespace {

// Memory of a thread that is reused from image to image.
struct Scratch {
  Resampler resampler;
  Rotator rotator;
  std::vector<std::uint8_t> bytes;
  std::vector<std::uint8_t> spare;
  std::vector<Erasure> erasures;
};

Scratch& scratch_of_thread() {
  thread_local Scratch scratch;
  return scratch;
}

// An image that passes the list: the pixels of `image` that it shows, and the erasures over them.
class Canvas {
 public:
  Canvas(ImageReader& reader, std::uint64_t sample, PhiloxStream& random, Scratch& scratch)
      : reader_(reader), sample_(sample), random_(random), scratch_(scratch) {
    show({.shape = reader.shape()});
    scratch.erasures.clear();
  }

  void operator()(const Pad& pad) {
    if (pad.pixels == 0) return;
    pad_with(pad.fill);
    rows_.pad(pad.pixels, pad.pixels);
    columns_.pad(pad.pixels, pad.pixels);
  }
  void operator()(const RandomCrop& crop) {
    check_fits(crop, rows_.size, columns_.size, named());
    cut(choose(crop, rows_.size, columns_.size, random_));
  }
  void operator()(const CenterCrop& crop) {
    if (rows_.size < crop.size.height || columns_.size < crop.size.width) pad_with(0);
    rows_.pad_to(crop.size.height);
    columns_.pad_to(crop.size.width);
    cut(center_region(crop.size, rows_.size, columns_.size));
  }
  void operator()(const Resize& resize) { become(resized(resize, rows_.size, columns_.size)); }
  void operator()(const RandomResizedCrop& crop) {
    cut(choose(crop, rows_.size, columns_.size, random_));
    become(crop.size);
  }
  void operator()(const RandomHorizontalFlip& flip) {
    if (!choose(flip, random_)) return;
    settle_erasures();
    columns_.flip();
  }
  void operator()(const RandomVerticalFlip& flip) {
    if (!choose(flip, random_)) return;
    settle_erasures();
    rows_.flip();
  }
  void operator()(const RandomRotation& rotation) {
    const double turn = std::fmod(choose(rotation, random_), 360.0);
    const double degrees = turn < 0 ? turn + 360 : turn;
    if (degrees == 0) return;
    settle_erasures();
    if (degrees == 180) {
      rows_.flip();
      columns_.flip();
      return;
    }
    if (!is_whole()) materialise();
    const ImageView shown = whole();
    const Rotation matrix =
        make_rotation(degrees, shown.shape.height, shown.shape.width, rotation.expand);
    const ImageShape shape{shown.shape.channels, matrix.height, matrix.width};
    check_made("rotating", shown.shape, shape, named());
    scratch_.spare.resize(static_cast<std::size_t>(shape.elements()));
    scratch_.rotator.rotate(shown, matrix, rotation.interpolation,
                            static_cast<std::uint8_t>(rotation.fill), scratch_.spare.data());
    std::swap(scratch_.bytes, scratch_.spare);
    show(ImageView::planar(scratch_.bytes.data(), shape));
  }
  void operator()(const ColorJitter& jitter) {
    const ColorSteps steps = choose(jitter, random_);
    if (steps.count == 0) return;
    settle_erasures();
    const ColorPlanes planes = own();
    for (const ColorStep& step : steps) recolor(step, planes);
  }
  void operator()(const Grayscale& grayscale) { turn_gray(grayscale.num_output_channels); }
  void operator()(const RandomGrayscale& grayscale) {
    if (choose(grayscale, random_)) turn_gray(image_.shape.channels);
  }
  void operator()(const Cutout& cutout) {
    erase(choose(cutout, rows_.size, columns_.size, random_), 0);
  }
  void operator()(const RandomErasing& erasing) {
    const auto box = choose(erasing, rows_.size, columns_.size, random_);
    if (box) erase(*box, normalized_ ? erasing.value : 255 * erasing.value);
  }
  void operator()(const Normalize&) { normalized_ = true; }

  void write(std::span<const ChannelScale> channels, const AugmentationPlanOptions& options,
             void* output) {
    take_pixels();
    write_image({image_, rows_, columns_, fill_, channels, scratch_.erasures, options.layout,
                 options.type, output});
  }

 private:
  NamedImage named() const { return {.sample = sample_, .file = reader_.name()}; }
  void show(const ImageView& image) {
    image_ = image;
    rows_ = {.size = image.shape.height};
    columns_ = {.size = image.shape.width};
  }
  bool is_whole() const {
    const auto covers = [](const Axis& axis) {
      return axis.visible() == std::pair<std::int64_t, std::int64_t>{0, axis.size};
    };
    return covers(rows_) && covers(columns_);
  }

  // Sets the value of later padding.
  void pad_with(int fill) {
    settle_erasures();
    if (fill != fill_ && !is_whole()) materialise();
    fill_ = static_cast<std::uint8_t>(fill);
  }

  void cut(const ImageRegion& box) {
    settle_erasures();
    rows_.crop(box.top, box.height);
    columns_.crop(box.left, box.width);
  }

  void become(ImageSize size) {
    settle_erasures();
    if (size.height == rows_.size && size.width == columns_.size) return;
    check_made("resizing", {image_.shape.channels, rows_.size, columns_.size},
               {image_.shape.channels, size.height, size.width}, named());
    if (!rows_.is_window() || !columns_.is_window()) materialise();
    const ImageRegion part{rows_.origin, columns_.origin, rows_.size, columns_.size};
    const ReducedView shown = image_.pixels == nullptr
                                  ? reader_.reduced(part, size.height, size.width)
                                  : ReducedView::full_size(image_.part(part));
    show(scratch_.resampler.resize(shown, size.height, size.width));
  }

  // Reads the visible pixels of the reader's image.
  void take_pixels() {
    if (image_.pixels != nullptr) return;
    const auto [top, bottom] = rows_.shown();
    const auto [left, right] = columns_.shown();
    if (top == bottom || left == right) return;  // only padding
    image_ = reader_.pixels({top, left, bottom - top, right - left});
    rows_.narrow_source(top, bottom);
    columns_.narrow_source(left, right);
  }

  // The visible pixels, without a copy, in their order. The image must be whole.
  ImageView whole() {
    take_pixels();
    ImageView result = image_;
    result.shape.height = rows_.size;
    result.shape.width = columns_.size;
    result.pixels += rows_.origin * image_.row_stride + columns_.origin * image_.pixel_stride;
    result.row_stride *= rows_.step;
    result.pixel_stride *= columns_.step;
    return result;
  }

  // Makes a mutable copy of the visible pixels. Returns no pixels if only padding is visible.
  ColorPlanes own() {
    take_pixels();
    const auto [top, bottom] = rows_.shown();
    const auto [left, right] = columns_.shown();
    if (top == bottom || left == right) return {.channels = image_.shape.channels};
    const ImageView shown = image_.part({top, left, bottom - top, right - left});
    rows_.narrow_source(top, bottom);
    columns_.narrow_source(left, right);
    const ColorPlanes planes = copy_planes(shown, scratch_.spare);
    std::swap(scratch_.bytes, scratch_.spare);
    image_ = ImageView::planar(planes.bytes, shown.shape);
    image_.channel_stride = planes.stride;
    return planes;
  }

  // Also changes the padding. It is grey, so saturation and hue do not change it.
  void recolor(const ColorStep& step, const ColorPlanes& planes) {
    const auto factor = static_cast<float>(step.factor);
    const auto blend_all = [&](std::uint8_t from) {
      blend_planes(planes, from, factor);
      fill_ = blend(from, fill_, factor);
    };
    switch (step.property) {
      case ColorProperty::kBrightness:
        return blend_all(0);
      case ColorProperty::kContrast:
        return blend_all(mean_gray(planes));
      case ColorProperty::kSaturation:
        if (planes.channels == 3) adjust_saturation(planes, factor);
        return;
      case ColorProperty::kHue:
        if (planes.channels == 3) adjust_hue(planes, static_cast<int>(step.factor * 255));
        return;
    }
  }

  std::uint8_t mean_gray(const ColorPlanes& planes) const {
    const std::int64_t pixels = rows_.size * columns_.size;
    const std::int64_t sum = sum_grays(planes) + (pixels - planes.pixels) * fill_;
    return static_cast<std::uint8_t>(static_cast<double>(sum) / static_cast<double>(pixels) + 0.5);
  }

  // Padding and erased areas are already grey.
  void turn_gray(std::int64_t channels) {
    take_pixels();
    if (image_.shape.channels == 3) make_gray(own());
    image_.shape.channels = channels;
    if (channels == 3) image_.channel_stride = 0;  // all three channels share one plane
  }

  void erase(const ImageRegion& box, double value) {
    scratch_.erasures.push_back(
        {box.top, box.left, box.height, box.width, static_cast<float>(value), !normalized_});
  }

  // Draws the erasures into the pixels, so that later geometry moves them.
  void settle_erasures() {
    if (!scratch_.erasures.empty()) materialise();
  }

  // Makes the visible image in memory.
  void materialise() {
    take_pixels();
    const ImageShape shape{image_.shape.channels, rows_.size, columns_.size};
    check_made("padding", image_.shape, shape, named());
    std::vector<std::uint8_t>& made = scratch_.spare;
    made.assign(static_cast<std::size_t>(shape.elements()), fill_);
    const auto [top, bottom] = rows_.visible();
    const auto [left, right] = columns_.visible();
    for (std::int64_t c = 0; c < shape.channels; ++c) {
      std::uint8_t* plane = made.data() + c * shape.height * shape.width;
      for (std::int64_t y = top; y < bottom; ++y) {
        const std::uint8_t* row = image_.pixels + c * image_.channel_stride +
                                  (rows_.origin + rows_.step * y) * image_.row_stride;
        for (std::int64_t x = left; x < right; ++x) {
          plane[y * shape.width + x] =
              row[(columns_.origin + columns_.step * x) * image_.pixel_stride];
        }
      }
      for (const Erasure& area : scratch_.erasures) {
        const auto value = static_cast<std::uint8_t>(std::lround(area.value));
        for (std::int64_t y = 0; y < area.height; ++y) {
          std::fill_n(plane + (area.top + y) * shape.width + area.left, area.width, value);
        }
      }
    }
    scratch_.erasures.clear();
    std::swap(scratch_.bytes, scratch_.spare);
    show(ImageView::planar(scratch_.bytes.data(), shape));
  }

  ImageReader& reader_;
  const std::uint64_t sample_;
  PhiloxStream& random_;
  Scratch& scratch_;
  ImageView image_;
  Axis rows_{0};
  Axis columns_{0};
  std::uint8_t fill_ = 0;
  bool normalized_ = false;
};

}  // namespace

AugmentationPlan::AugmentationPlan(const Augmentation& operators, ImageShape input,
                                   const AugmentationPlanOptions& options)
    : input_(input),
      output_(check_augmentation(operators, input)),
      options_(options),
      operators_(operators),
      channels_(channel_scales(operators)) {}

void AugmentationPlan::apply(const ImageView& image, const SampleKey& key, void* output) const {
  ImageReader reader;
  reader.show(image);
  apply(reader, key, output);
}

void AugmentationPlan::apply(ImageReader& image, const SampleKey& key, void* output) const {
  check_declared(image.shape(), input_, key.sample);
  PhiloxStream random = key.stream();
  Canvas canvas(image, key.sample, random, scratch_of_thread());
  for (const Operator& op : operators_) std::visit(canvas, op);
  canvas.write(channels_, options_, output);
}

}  // namespace lockstep::data
