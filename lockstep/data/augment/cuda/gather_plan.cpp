#include <lockstep/data/augment/cuda/gather_plan.h>

#include <algorithm>
#include <optional>

#include <lockstep/core/error.h>
#include <lockstep/core/philox.h>
#include <lockstep/data/augment/axis.h>
#include <lockstep/data/augment/channel_scales.h>
#include <lockstep/data/augment/check_augmentation.h>
#include <lockstep/data/augment/choices.h>
#include <lockstep/data/augment/operator_name.h>

namespace lockstep::data {
namespace {

GatherAxis compact(const Axis& axis) {
  return {.origin = static_cast<std::int32_t>(axis.origin),
          .step = static_cast<std::int32_t>(axis.step),
          .low = static_cast<std::int32_t>(axis.low),
          .high = static_cast<std::int32_t>(axis.high)};
}

// The map of one image while it passes the list; the native engine's Canvas without pixels.
class Map {
 public:
  Map(const ImageShape& source, PhiloxStream& random)
      : random_(random), rows_{source.height}, columns_{source.width} {}

  void operator()(const Pad& pad) {
    move();
    fill_with(pad.fill, pad.pixels > 0);
    rows_.pad(pad.pixels, pad.pixels);
    columns_.pad(pad.pixels, pad.pixels);
  }
  void operator()(const RandomCrop& crop) { cut(choose(crop, rows_.size, columns_.size, random_)); }
  void operator()(const CenterCrop& crop) {
    move();
    fill_with(0, rows_.size < crop.size.height || columns_.size < crop.size.width);
    rows_.pad_to(crop.size.height);
    columns_.pad_to(crop.size.width);
    cut(center_region(crop.size, rows_.size, columns_.size));
  }
  void operator()(const RandomHorizontalFlip& flip) {
    move();
    if (choose(flip, random_)) columns_.flip();
  }
  void operator()(const RandomVerticalFlip& flip) {
    move();
    if (choose(flip, random_)) rows_.flip();
  }
  void operator()(const Cutout& cutout) {
    erase(choose(cutout, rows_.size, columns_.size, random_), 0);
  }
  void operator()(const RandomErasing& erasing) {
    erase(choose(erasing, rows_.size, columns_.size, random_),
          normalized_ ? erasing.value : 255 * erasing.value);
  }
  void operator()(const Normalize&) { normalized_ = true; }
  template <class Other>
  void operator()(const Other&) {
    refuse("is not among what it can execute");
  }

  GatherImage image(std::int64_t index) const {
    GatherImage image = {.index = index,
                         .rows = compact(rows_),
                         .columns = compact(columns_),
                         .erasures = count_,
                         .erased = {}};
    std::copy_n(erased_, count_, image.erased);
    return image;
  }
  int fill() const { return fill_.value_or(0); }

  const Operator* under_way = nullptr;

 private:
  [[noreturn]] void refuse(const char* why) const {
    throw ConfigError(
        str("Loader: the cuda engine cannot execute this list: ", operator_name(*under_way), " ",
            why, "; set LoaderOptions::engine to native"));
  }
  void move() const {
    if (places_ > 0) refuse("would move what was erased before it");
  }
  void fill_with(int fill, bool shown) {
    if (!shown) return;
    if (fill_ && *fill_ != fill) refuse("pads with another value than the one before");
    fill_ = fill;
  }
  void cut(const ImageRegion& box) {
    move();
    rows_.crop(box.top, box.height);
    columns_.crop(box.left, box.width);
  }
  void erase(const std::optional<ImageRegion>& box, double value) {
    if (++places_ > kMostErasures) refuse("is one erased area too many");
    if (!box) return;
    erased_[count_++] = {.top = static_cast<std::int32_t>(box->top),
                         .left = static_cast<std::int32_t>(box->left),
                         .bottom = static_cast<std::int32_t>(box->top + box->height),
                         .right = static_cast<std::int32_t>(box->left + box->width),
                         .value = static_cast<float>(value),
                         .is_byte = normalized_ ? 0 : 1};
  }

  PhiloxStream& random_;
  Axis rows_;
  Axis columns_;
  std::optional<int> fill_;
  bool normalized_ = false;
  // The number of operators that may erase: whether a list is valid must not depend on chance.
  int places_ = 0;
  std::int32_t count_ = 0;
  GatherErasure erased_[kMostErasures] = {};
};

Map walk(const Augmentation& operators, const ImageShape& source, PhiloxStream& random) {
  Map map(source, random);
  for (const Operator& op : operators) {
    map.under_way = &op;
    std::visit(map, op);
  }
  return map;
}

}  // namespace

GatherPlan::GatherPlan(const Augmentation& operators, const ImageShape& input, bool channels_last)
    : operators_(operators) {
  const ImageShape output = check_augmentation(operators, input);
  if (output.channels > kMostChannels) {
    throw ConfigError(str("Loader: the cuda engine takes images of up to ", kMostChannels,
                          " channels, got ", output.channels,
                          "; set LoaderOptions::engine to native"));
  }
  PhiloxStream random(0, 0, 0);
  const Map map = walk(operators, input, random);  // throws if the list cannot be executed
  shape_.channels = static_cast<std::int32_t>(output.channels);
  shape_.source_height = static_cast<std::int32_t>(input.height);
  shape_.source_width = static_cast<std::int32_t>(input.width);
  shape_.height = static_cast<std::int32_t>(output.height);
  shape_.width = static_cast<std::int32_t>(output.width);
  shape_.channels_last = channels_last ? 1 : 0;
  shape_.fill = static_cast<float>(map.fill());
  const std::vector<ChannelScale> scales = channel_scales(operators);
  for (std::size_t c = 0; c < scales.size(); ++c) {
    shape_.scale[c] = scales[c].scale;
    shape_.bias[c] = scales[c].bias;
  }
}

GatherImage GatherPlan::image(std::int64_t index, const SampleKey& key) const {
  PhiloxStream random = key.stream();
  const ImageShape source{shape_.channels, shape_.source_height, shape_.source_width};
  return walk(operators_, source, random).image(index);
}

}  // namespace lockstep::data
