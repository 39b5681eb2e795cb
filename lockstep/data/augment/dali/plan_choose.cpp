#include <array>
#include <optional>

#include <lockstep/core/error.h>
#include <lockstep/core/philox.h>
#include <lockstep/data/augment/axis.h>
#include <lockstep/data/augment/check_augmentation.h>
#include <lockstep/data/augment/choices.h>
#include <lockstep/data/augment/dali/plan.h>
#include <lockstep/data/augment/operator_name.h>

namespace lockstep::data {
namespace {

// Applies a Geometry to the size of one image.
class Window {
 public:
  Window(const ImageShape& image, const NamedImage& named, PhiloxStream& random)
      : rows_{image.height}, columns_{image.width}, image_(image), named_(named), random_(random) {}

  void operator()(const Pad& pad) {
    rows_.pad(pad.pixels, pad.pixels);
    columns_.pad(pad.pixels, pad.pixels);
  }
  void operator()(const RandomCrop& crop) {
    check_fits(crop, rows_.size, columns_.size, named_);
    cut(choose(crop, rows_.size, columns_.size, random_));
  }
  void operator()(const CenterCrop& crop) {
    rows_.pad_to(crop.size.height);
    columns_.pad_to(crop.size.width);
    cut(center_region(crop.size, rows_.size, columns_.size));
  }
  void operator()(const RandomResizedCrop& crop) {
    cut(choose(crop, rows_.size, columns_.size, random_));
    become(crop.size);
  }
  void operator()(const Resize& resize) { become(resized(resize, rows_.size, columns_.size)); }
  void operator()(const RandomHorizontalFlip& flip) {
    if (choose(flip, random_)) columns_.flip();
  }
  void operator()(const RandomVerticalFlip& flip) {
    if (choose(flip, random_)) rows_.flip();
  }
  template <class Other>
  void operator()(const Other& other) {
    throw InternalError(str("dali plan: ", operator_name(other), " does not change the geometry"));
  }

  std::array<std::int32_t, 2> start() const { return {first(rows_), first(columns_)}; }
  std::array<std::int32_t, 2> shape() const {
    return {static_cast<std::int32_t>(rows_.size), static_cast<std::int32_t>(columns_.size)};
  }
  float position_y() const { return position(rows_, image_.height); }
  float position_x() const { return position(columns_, image_.width); }
  bool mirrored() const { return columns_.step < 0; }
  bool turned_over() const { return rows_.step < 0; }
  ImageSize size() const {
    return resized_.value_or(
        ImageSize{static_cast<int>(rows_.size), static_cast<int>(columns_.size)});
  }

 private:
  void cut(const ImageRegion& box) {
    rows_.crop(box.top, box.height);
    columns_.crop(box.left, box.width);
  }
  void become(ImageSize size) {
    check_made("resizing", {image_.channels, rows_.size, columns_.size},
               {image_.channels, size.height, size.width}, named_);
    resized_ = size;
  }
  static std::int32_t first(const Axis& axis) {
    return static_cast<std::int32_t>(axis.step > 0 ? axis.origin : axis.origin - (axis.size - 1));
  }
  static float position(const Axis& axis, std::int64_t source) {
    if (source == axis.size) return 0;
    return static_cast<float>(first(axis)) / static_cast<float>(source - axis.size);
  }

  Axis rows_;
  Axis columns_;
  const ImageShape image_;
  const NamedImage named_;
  std::optional<ImageSize> resized_;
  PhiloxStream& random_;
};

}  // namespace

void DaliPlan::resize(DaliNumbers& numbers, std::int64_t images) const {
  numbers.resize(inputs_.size());
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    numbers[i].resize(static_cast<std::size_t>(images * inputs_[i].count));
  }
}

void DaliPlan::choose(const ImageShape& image, const SampleKey& key, std::int64_t place,
                      DaliNumbers& numbers, std::string_view file) const {
  check_declared(image, input_, key.sample);
  const NamedImage named{.sample = key.sample, .file = file};
  PhiloxStream random = key.stream();
  ImageShape shape{image.channels, image.height + 2 * border_.pixels,
                   image.width + 2 * border_.pixels};
  if (border_.pixels > 0) check_made("padding", image, shape, named);
  // Writes one number, or two: rows and columns.
  const auto put = [&](int input, DaliNumber first, DaliNumber second = {}) {
    if (input < 0) return;
    const auto count = inputs_[static_cast<std::size_t>(input)].count;
    DaliNumber* to = numbers[static_cast<std::size_t>(input)].data() + place * count;
    to[0] = first;
    if (count == 2) to[1] = second;
  };
  for (const Step& step : steps_) {
    if (const auto* geometry = std::get_if<Geometry>(&step)) {
      Window window(shape, named, random);
      for (const Operator& op : geometry->operators) std::visit(window, op);
      put(geometry->start, window.start()[0], window.start()[1]);
      put(geometry->shape, window.shape()[0], window.shape()[1]);
      put(geometry->position_y, window.position_y());
      put(geometry->position_x, window.position_x());
      put(geometry->mirror, std::int32_t{window.mirrored()});
      put(geometry->vertical, std::int32_t{window.turned_over()});
      shape.height = window.size().height;
      shape.width = window.size().width;
      put(geometry->size, static_cast<float>(shape.height), static_cast<float>(shape.width));
      continue;
    }
    const auto& erasing = std::get<Erasing>(step);
    ImageRegion box;  // empty: nothing is erased
    if (const auto* cutout = std::get_if<Cutout>(&erasing.op)) {
      box = lockstep::data::choose(*cutout, shape.height, shape.width, random);
    } else {
      box = lockstep::data::choose(std::get<RandomErasing>(erasing.op), shape.height, shape.width,
                                   random)
                .value_or(ImageRegion{});
    }
    put(erasing.anchor, static_cast<float>(box.top), static_cast<float>(box.left));
    put(erasing.shape, static_cast<float>(box.height), static_cast<float>(box.width));
  }
}

}  // namespace lockstep::data
