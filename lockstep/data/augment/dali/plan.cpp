#include <lockstep/data/augment/dali/plan.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/core/philox.h>
#include <lockstep/data/augment/axis.h>
#include <lockstep/data/augment/check_list.h>
#include <lockstep/data/augment/choices.h>

namespace lockstep {
namespace {

constexpr std::int64_t kFloat16 = 8;  // DALIDataType
constexpr float kByte = 255;

[[noreturn]] void refuse(const char* what) {
  throw ConfigError(str("Loader: the dali engine cannot execute ", what, "; use --loader native"));
}

std::vector<float> filled(float value) { return {value}; }

}  // namespace

// Follows the list; what moves pixels is held back until something else needs the image as it is then.
class DaliPlanCompiler {
 public:
  DaliPlanCompiler(DaliPlan& plan, const Augmentation& operators, const ImageShape& input,
                   const DaliPlanOptions& options)
      : plan_(plan), options_(options), encoded_(options.encoded), shape_(input) {
    plan_.output_ = check_list(operators, input);
    if (options.type == PixelType::kBFloat16) {
      throw ConfigError(
          "Loader: the dali engine cannot make bfloat16 images; use float32 or float16, or --loader native");
    }
    for (std::size_t i = 0; i < operators.size(); ++i) {
      geometry_follows_ = std::any_of(operators.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                                      operators.end(), is_geometry);
      std::visit(*this, operators[i]);
    }
  }

  void operator()(const Pad& pad) {
    if (pad.pixels == 0) return;
    begin_padding(static_cast<std::uint8_t>(pad.fill));
    held_.operators.emplace_back(pad);
    if (is_known()) become(shape_.height + 2 * pad.pixels, shape_.width + 2 * pad.pixels);
  }
  void operator()(const RandomCrop& crop) { cut(crop); }
  void operator()(const CenterCrop& crop) {
    const bool fits =
        is_known() && crop.size.height <= shape_.height && crop.size.width <= shape_.width;
    if (!fits) begin_padding(0);
    cut(crop);
  }
  void operator()(const RandomResizedCrop& crop) {
    cut(crop);
    resize(crop.size.height, crop.size.width);
  }
  void operator()(const Resize& op) {
    held_.operators.emplace_back(op);
    if (!op.shorter_side) return resize(op.size.height, op.size.width);
    if (!is_known()) return resize(0, 0);
    const ImageSize size = resized(op, shape_.height, shape_.width);
    resize(size.height, size.width);
  }
  void operator()(const RandomHorizontalFlip& flip) {
    held_.operators.emplace_back(flip);
    mirrors_ = true;
  }
  void operator()(const RandomVerticalFlip& flip) {
    held_.operators.emplace_back(flip);
    turns_over_ = true;
  }
  void operator()(const Cutout& cutout) { erase(cutout, 0); }
  void operator()(const RandomErasing& erasing) {
    erase(erasing, static_cast<float>(erasing.value) * (normalized_ ? 1 : kByte));
  }
  void operator()(const Normalize& normalize) {
    mean_ = normalize.mean;
    std_ = normalize.std;
    finish();
    normalized_ = true;
    for (Late& late : late_) {
      std::vector<float> values;
      for (std::size_t c = 0; c < mean_.size(); ++c) {
        values.push_back(static_cast<float>((late.byte / kByte - mean_[c]) / std_[c]));
      }
      plan_.steps_.emplace_back(late.erasing);
      add_erase(late.erasing, std::move(values));
    }
  }
  void operator()(const RandomRotation&) { refuse("RandomRotation"); }
  void operator()(const ColorJitter&) { refuse("ColorJitter"); }
  void operator()(const Grayscale&) { refuse("Grayscale"); }
  void operator()(const RandomGrayscale&) { refuse("RandomGrayscale"); }

 private:
  using Arguments = std::vector<std::pair<std::string, DaliValue>>;
  struct Late {
    DaliPlan::Erasing erasing;
    float byte;
  };

  static bool is_geometry(const Operator& op) {
    return !std::holds_alternative<Cutout>(op) && !std::holds_alternative<RandomErasing>(op) &&
           !std::holds_alternative<Normalize>(op);
  }

  bool is_known() const { return shape_.height > 0; }
  void become(std::int64_t height, std::int64_t width) {
    shape_.height = height;
    shape_.width = width;
  }

  // One fill a Slice, and what a crop cut off must not come back.
  void begin_padding(std::uint8_t fill) {
    if (crops_ || (pads_ && fill != fill_)) settle();
    pads_ = true;
    fill_ = fill;
  }

  template <class Crop>
  void cut(const Crop& crop) {
    held_.operators.emplace_back(crop);
    crops_ = true;
    become(crop.size.height, crop.size.width);
  }

  int feed(const char* name, bool is_integer, int count) {
    plan_.inputs_.push_back({str(name, plan_.inputs_.size()), is_integer, count});
    return static_cast<int>(plan_.inputs_.size()) - 1;
  }

  void add(std::string schema, Arguments arguments) {
    plan_.operators_.push_back({std::move(schema), std::move(arguments)});
  }

  // EXIF's orientation is ignored, as our decoder and torchvision's ImageFolder ignore it.
  void decode() {
    if (encoded_) add("decoders__Image", {{"adjust_orientation", false}});
    encoded_ = false;
  }

  void slice() {
    held_.start = feed("start", true, 2);
    held_.shape = feed("shape", true, 2);
    Arguments arguments = {{"start", DaliFed{held_.start}},
                           {"shape", DaliFed{held_.shape}},
                           {"axis_names", std::string("HW")}};
    if (encoded_ && !pads_) {
      arguments.emplace_back("adjust_orientation", false);
      add("decoders__ImageSlice", std::move(arguments));
      encoded_ = false;
      return;
    }
    decode();
    if (pads_) {
      arguments.emplace_back("out_of_bounds_policy", std::string("pad"));
      arguments.emplace_back("fill_values", filled(fill_));
    }
    add("Slice", std::move(arguments));
  }

  void flip(bool mirrors) {
    held_.vertical = turns_over_ ? feed("vertical", true, 1) : -1;
    held_.mirror = mirrors ? feed("mirror", true, 1) : -1;
    const auto value = [](int input) {
      return input < 0 ? DaliValue{std::int64_t{0}} : DaliValue{DaliFed{input}};
    };
    add("Flip", {{"horizontal", value(held_.mirror)}, {"vertical", value(held_.vertical)}});
  }

  void release() {
    plan_.steps_.emplace_back(std::exchange(held_, {}));
    pads_ = crops_ = mirrors_ = turns_over_ = false;
  }

  void settle() {
    if (held_.operators.empty()) return;
    if (pads_ || crops_) slice();
    decode();
    if (mirrors_ || turns_over_) flip(mirrors_);
    release();
  }

  // To a size that is 0 where each image has its own.
  void resize(int height, int width) {
    if (pads_ || crops_) slice();
    decode();
    if (mirrors_ || turns_over_) flip(mirrors_);
    if (height > 0) {
      add("Resize", {{"size", std::vector<float>{static_cast<float>(height),
                                                 static_cast<float>(width)}}});
    } else {
      held_.size = feed("size", false, 2);
      add("Resize", {{"size", DaliFed{held_.size}}});
    }
    become(height, width);
    release();
  }

  void finish() {
    Arguments arguments;
    const bool decodes_slice = encoded_ && crops_;
    if (pads_ || decodes_slice || (crops_ && turns_over_)) {
      slice();
    } else if (crops_) {
      held_.position_y = feed("position_y", false, 1);
      held_.position_x = feed("position_x", false, 1);
      arguments = {{"crop_pos_y", DaliFed{held_.position_y}},
                   {"crop_pos_x", DaliFed{held_.position_x}},
                   {"crop", std::vector<float>{static_cast<float>(shape_.height),
                                               static_cast<float>(shape_.width)}}};
    }
    decode();
    if (turns_over_) flip(false);
    if (mirrors_) {
      held_.mirror = feed("mirror", true, 1);
      arguments.emplace_back("mirror", DaliFed{held_.mirror});
    }
    const auto in_bytes = [](const std::vector<double>& values) {
      std::vector<float> bytes;
      for (const double value : values) bytes.push_back(static_cast<float>(value * kByte));
      return bytes;
    };
    arguments.emplace_back("mean", in_bytes(mean_));
    arguments.emplace_back("std", in_bytes(std_));
    arguments.emplace_back("output_layout", std::string(options_.layout == Layout::kPlanar ? "CHW" : "HWC"));
    if (options_.type == PixelType::kFloat16) arguments.emplace_back("dtype", kFloat16);
    add("CropMirrorNormalize", std::move(arguments));
    release();
  }

  // Before Normalize it is done after it all the same where nothing moves it any more: there its value
  // need not be a whole byte.
  void erase(const Operator& op, float value) {
    const DaliPlan::Erasing erasing{op, feed("anchor", false, 2), feed("extent", false, 2)};
    if (!normalized_ && !geometry_follows_) {
      late_.push_back({erasing, value});
      return;
    }
    settle();
    decode();
    plan_.steps_.emplace_back(erasing);
    add_erase(erasing, filled(value));
  }

  void add_erase(const DaliPlan::Erasing& erasing, std::vector<float> values) {
    add("Erase", {{"anchor", DaliFed{erasing.anchor}},
                  {"shape", DaliFed{erasing.shape}},
                  {"axis_names", std::string("HW")},
                  {"fill_value", std::move(values)}});
  }

  DaliPlan& plan_;
  const DaliPlanOptions options_;
  bool encoded_;      // not decoded yet
  ImageShape shape_;  // height 0: each image has its own
  bool geometry_follows_ = false;
  bool normalized_ = false;
  std::vector<double> mean_;
  std::vector<double> std_;
  DaliPlan::Geometry held_;
  bool pads_ = false;
  bool crops_ = false;
  bool mirrors_ = false;
  bool turns_over_ = false;
  std::uint8_t fill_ = 0;
  std::vector<Late> late_;
};
namespace {

// What a Geometry does to one image.
class Window {
 public:
  Window(std::int64_t height, std::int64_t width, PhiloxStream& random)
      : rows_{height}, columns_{width}, height_(height), width_(width), random_(random) {}

  void operator()(const Pad& pad) {
    rows_.pad(pad.pixels, pad.pixels);
    columns_.pad(pad.pixels, pad.pixels);
  }
  void operator()(const RandomCrop& crop) {
    check_fits(crop, rows_.size, columns_.size);
    cut(choose(crop, rows_.size, columns_.size, random_));
  }
  void operator()(const CenterCrop& crop) {
    const std::int64_t rows = std::max<std::int64_t>(crop.size.height - rows_.size, 0);
    const std::int64_t columns = std::max<std::int64_t>(crop.size.width - columns_.size, 0);
    rows_.pad(rows / 2, (rows + 1) / 2);
    columns_.pad(columns / 2, (columns + 1) / 2);
    cut(center_box(crop.size, rows_.size, columns_.size));
  }
  void operator()(const RandomResizedCrop& crop) {
    cut(choose(crop, rows_.size, columns_.size, random_));
    resized_ = crop.size;
  }
  void operator()(const Resize& resize) { resized_ = resized(resize, rows_.size, columns_.size); }
  void operator()(const RandomHorizontalFlip& flip) {
    if (choose(flip, random_)) columns_.flip();
  }
  void operator()(const RandomVerticalFlip& flip) {
    if (choose(flip, random_)) rows_.flip();
  }
  template <class Other>
  void operator()(const Other&) {}

  std::array<std::int32_t, 2> start() const { return {first(rows_), first(columns_)}; }
  std::array<std::int32_t, 2> shape() const {
    return {static_cast<std::int32_t>(rows_.size), static_cast<std::int32_t>(columns_.size)};
  }
  float position_y() const { return position(rows_, height_); }
  float position_x() const { return position(columns_, width_); }
  bool mirrored() const { return columns_.step < 0; }
  bool turned_over() const { return rows_.step < 0; }
  ImageSize size() const {
    return resized_.value_or(ImageSize{static_cast<int>(rows_.size), static_cast<int>(columns_.size)});
  }

 private:
  void cut(const Box& box) {
    rows_.crop(box.top, box.height);
    columns_.crop(box.left, box.width);
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
  std::int64_t height_;
  std::int64_t width_;
  std::optional<ImageSize> resized_;
  PhiloxStream& random_;
};

}  // namespace

DaliPlan::DaliPlan(const Augmentation& operators, const ImageShape& input,
                   const DaliPlanOptions& options) {
  DaliPlanCompiler(*this, operators, input, options);
}

void DaliPlan::resize(DaliNumbers& numbers, std::int64_t images) const {
  numbers.resize(inputs_.size());
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    numbers[i].resize(static_cast<std::size_t>(images * inputs_[i].count));
  }
}

void DaliPlan::choose(const ImageShape& image, const SampleKey& key, std::int64_t place,
                      DaliNumbers& numbers) const {
  PhiloxStream random(key.seed, key.epoch, key.sample);
  std::int64_t height = image.height;
  std::int64_t width = image.width;
  // One number, or two: rows and columns.
  const auto put = [&](int input, DaliNumber first, DaliNumber second = {}) {
    if (input < 0) return;
    const auto count = inputs_[static_cast<std::size_t>(input)].count;
    DaliNumber* to = numbers[static_cast<std::size_t>(input)].data() + place * count;
    to[0] = first;
    if (count == 2) to[1] = second;
  };
  for (const Step& step : steps_) {
    if (const auto* geometry = std::get_if<Geometry>(&step)) {
      Window window(height, width, random);
      for (const Operator& op : geometry->operators) std::visit(window, op);
      put(geometry->start, window.start()[0], window.start()[1]);
      put(geometry->shape, window.shape()[0], window.shape()[1]);
      put(geometry->position_y, window.position_y());
      put(geometry->position_x, window.position_x());
      put(geometry->mirror, std::int32_t{window.mirrored()});
      put(geometry->vertical, std::int32_t{window.turned_over()});
      height = window.size().height;
      width = window.size().width;
      put(geometry->size, static_cast<float>(height), static_cast<float>(width));
      continue;
    }
    const auto& erasing = std::get<Erasing>(step);
    Box box;  // empty: nothing is erased
    if (const auto* cutout = std::get_if<Cutout>(&erasing.op)) {
      box = lockstep::choose(*cutout, height, width, random);
    } else {
      box = lockstep::choose(std::get<RandomErasing>(erasing.op), height, width, random).value_or(Box{});
    }
    put(erasing.anchor, static_cast<float>(box.top), static_cast<float>(box.left));
    put(erasing.shape, static_cast<float>(box.height), static_cast<float>(box.width));
  }
}

}  // namespace lockstep
