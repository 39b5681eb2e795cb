#include <lockstep/data/augment/dali/plan.h>

#include <algorithm>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/data/augment/check_augmentation.h>
#include <lockstep/data/augment/choices.h>
#include <lockstep/data/augment/operator_name.h>

namespace lockstep::data {
namespace {

constexpr std::int64_t kFloat16 = 8;  // DALIDataType
constexpr float kByte = 255;

std::vector<float> filled(float value) { return {value}; }

}  // namespace

// Compiles the list. Operators that move pixels are held back until another operator needs their
// result.
class DaliPlanCompiler {
 public:
  DaliPlanCompiler(DaliPlan& plan, const Augmentation& operators, const ImageShape& input,
                   const DaliPlanOptions& options)
      : plan_(plan), options_(options), encoded_(options.encoded), shape_(input) {
    plan_.input_ = input;
    plan_.output_ = check_augmentation(operators, input);
    if (options.type == PixelType::kBFloat16) {
      throw ConfigError(
          "Loader: the dali engine cannot make bfloat16 images; use float32 or float16, or "
          "set LoaderOptions::engine to native");
    }
    const std::size_t first = encoded_ ? 0 : take_border(operators);
    for (std::size_t i = first; i < operators.size(); ++i) {
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
  template <class Other>
  void operator()(const Other& other) {
    throw ConfigError(str("Loader: the dali engine cannot execute ", operator_name(other),
                          "; set LoaderOptions::engine to native"));
  }

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

  // Returns the number of operators that belong to the border.
  std::size_t take_border(const Augmentation& operators) {
    const auto* pad = std::get_if<Pad>(&operators.front());
    if (pad == nullptr) return 0;
    plan_.border_ = *pad;
    if (is_known()) become(shape_.height + 2 * pad->pixels, shape_.width + 2 * pad->pixels);
    return 1;
  }

  bool is_known() const { return shape_.height > 0; }
  void become(std::int64_t height, std::int64_t width) {
    shape_.height = height;
    shape_.width = width;
  }

  // A Slice has only one fill, and pixels that a crop cut off must not come back.
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

  // Decodes as our own decoder and torchvision's ImageFolder do: EXIF's orientation is ignored, and
  // a GPU's decoder interpolates colours between pixels, as libjpeg-turbo does.
  void add_decoder(std::string schema, Arguments arguments) {
    arguments.emplace_back("adjust_orientation", false);
    arguments.emplace_back("jpeg_fancy_upsampling", true);
    add(std::move(schema), std::move(arguments));
    encoded_ = false;
  }
  void decode() {
    if (encoded_) add_decoder("decoders__Image", {});
  }

  void slice() {
    held_.start = feed("start", true, 2);
    held_.shape = feed("shape", true, 2);
    Arguments arguments = {{"start", DaliFed{held_.start}},
                           {"shape", DaliFed{held_.shape}},
                           {"axis_names", std::string("HW")}};
    if (encoded_ && !pads_) {
      return add_decoder("decoders__ImageSlice", std::move(arguments));
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

  // Resizes to the given size; a side of 0 means that each image has its own size.
  void resize(int height, int width) {
    if (pads_ || crops_) slice();
    decode();
    if (mirrors_ || turns_over_) flip(mirrors_);
    if (height > 0) {
      add("Resize",
          {{"size", std::vector<float>{static_cast<float>(height), static_cast<float>(width)}}});
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
    arguments.emplace_back("output_layout",
                           std::string(options_.layout == Layout::kPlanar ? "CHW" : "HWC"));
    if (options_.type == PixelType::kFloat16) arguments.emplace_back("dtype", kFloat16);
    add("CropMirrorNormalize", std::move(arguments));
    release();
  }

  // If nothing moves the erased area any more, an erasure before Normalize is executed after it:
  // there its value need not be a whole byte.
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
DaliPlan::DaliPlan(const Augmentation& operators, const ImageShape& input,
                   const DaliPlanOptions& options) {
  DaliPlanCompiler(*this, operators, input, options);
}

}  // namespace lockstep::data
