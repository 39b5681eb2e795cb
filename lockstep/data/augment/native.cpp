#include <lockstep/data/augment/native.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/core/philox.h>
#include <lockstep/data/augment/rows.h>

namespace lockstep {
namespace {

constexpr int kMaximumPixels = 1 << 16;

// Where the pixels of one axis come from: output position x shows source position origin + step * x
// when that lies in [low, high), else black. Pads, crops and flips compose in this form.
struct Axis {
  std::int64_t size;
  std::int64_t origin = 0;
  std::int64_t step = 1;
  std::int64_t low = 0;
  std::int64_t high = size;

  void pad(std::int64_t pixels) {
    origin -= step * pixels;
    size += 2 * pixels;
  }
  void crop(std::int64_t first, std::int64_t count) {
    origin += step * first;
    size = count;
    // A later pad must not bring back what the crop cut off.
    const std::int64_t last = origin + step * (count - 1);
    low = std::max(low, std::min(origin, last));
    high = std::min(high, std::max(origin, last) + 1);
  }
  void flip() {
    origin += step * (size - 1);
    step = -step;
  }
  // Output positions [first, last) show the source; the others are black. first == last: all black.
  std::pair<std::int64_t, std::int64_t> visible() const {
    const std::int64_t first = step > 0 ? low - origin : origin - (high - 1);
    const std::int64_t last = first + (high - low);
    const std::int64_t begin = std::clamp<std::int64_t>(first, 0, size);
    return {begin, std::clamp(last, begin, size)};
  }
};

template <class... Handlers>
struct Overload : Handlers... {
  using Handlers::operator()...;
};

template <class... Values>
[[noreturn]] void reject(const Values&... values) {
  throw ConfigError(str("augmentation: ", values...));
}

void check_normalize(const Normalize& normalize, std::int64_t channels) {
  const auto count = static_cast<std::size_t>(channels);
  if (normalize.mean.size() != count || normalize.std.size() != count) {
    reject("Normalize has ", normalize.mean.size(), " means and ", normalize.std.size(),
           " deviations, the images have ", channels, " channels");
  }
  for (std::size_t c = 0; c < count; ++c) {
    if (!std::isfinite(normalize.mean[c]) || !std::isfinite(normalize.std[c]) ||
        normalize.std[c] <= 0) {
      reject("Normalize needs finite means and positive deviations, got ", normalize.mean[c],
             " and ", normalize.std[c], " for channel ", c);
    }
  }
}

}  // namespace

struct AugmentationPlan::Axes {
  Axis rows;
  Axis columns;

  // A cut that lies in the padding on one axis shows nothing on the other either, so that nobody
  // forms a pointer to a place outside of the image.
  void close() {
    const auto [top, bottom] = rows.visible();
    const auto [left, right] = columns.visible();
    if (top == bottom || left == right) rows.high = rows.low;
  }
};

AugmentationPlan::AugmentationPlan(const Augmentation& operators, ImageShape input, Layout layout)
    : input_(input), output_(input), layout_(layout) {
  validate(operators);
  const auto& normalize = std::get<Normalize>(operators.back());
  check_normalize(normalize, input.channels);
  geometry_.assign(operators.begin(), operators.end() - 1);
  for (std::size_t c = 0; c < normalize.mean.size(); ++c) {
    channels_.push_back({static_cast<float>(1 / (255 * normalize.std[c])),
                         static_cast<float>(-normalize.mean[c] / normalize.std[c])});
  }
}

// Follows the sizes through the list.
void AugmentationPlan::validate(const Augmentation& operators) {
  if (operators.empty() || !std::holds_alternative<Normalize>(operators.back())) {
    reject("the list must end with Normalize");
  }
  const auto resize = [this](std::int64_t height, std::int64_t width) {
    output_.height = height;
    output_.width = width;
  };
  for (std::size_t i = 0; i + 1 < operators.size(); ++i) {
    std::visit(Overload{
                   [&](const Pad& pad) {
                     if (pad.pixels < 0 || pad.pixels > kMaximumPixels) {
                       reject("Pad must be from 0 to ", kMaximumPixels, " pixels, got ",
                              pad.pixels);
                     }
                     resize(output_.height + 2 * pad.pixels, output_.width + 2 * pad.pixels);
                   },
                   [&](const RandomCrop& crop) {
                     if (crop.size < 1 || crop.size > std::min(output_.height, output_.width)) {
                       reject("RandomCrop of ", crop.size, " pixels does not fit into an image of ",
                              output_.height, "x", output_.width);
                     }
                     resize(crop.size, crop.size);
                   },
                   [&](const RandomFlip& flip) {
                     if (!(flip.probability >= 0 && flip.probability <= 1)) {
                       reject("RandomFlip needs a probability from 0 to 1, got ", flip.probability);
                     }
                   },
                   [&](const Normalize&) { reject("Normalize must come once and last"); },
               },
               operators[i]);
  }
}

AugmentationPlan::Axes AugmentationPlan::choose(const SampleKey& key) const {
  Axes axes{{.size = input_.height}, {.size = input_.width}};
  PhiloxStream random(key.seed, key.epoch, key.sample);
  for (const Operator& op : geometry_) {
    if (const auto* pad = std::get_if<Pad>(&op)) {
      axes.rows.pad(pad->pixels);
      axes.columns.pad(pad->pixels);
    } else if (const auto* crop = std::get_if<RandomCrop>(&op)) {
      const auto place = [&](Axis& axis) {
        axis.crop(random.below(static_cast<std::uint32_t>(axis.size - crop->size + 1)), crop->size);
      };
      place(axes.rows);
      place(axes.columns);
    } else if (const auto* flip = std::get_if<RandomFlip>(&op)) {
      if (random.uniform() < flip->probability) axes.columns.flip();
    }
  }
  axes.close();
  return axes;
}

void AugmentationPlan::apply(const std::uint8_t* image, const SampleKey& key, float* output) const {
  if (geometry_.empty() && (layout_ == Layout::kPlanar || input_.channels == 1)) {
    const std::int64_t plane = input_.height * input_.width;
    for (const Channel& channel : channels_) {
      row_functions().forward(image, plane, channel.scale, channel.bias, output);
      image += plane;
      output += plane;
    }
    return;
  }
  const Axes axes = choose(key);
  if (layout_ == Layout::kPlanar || input_.channels == 1) {
    write_planar(image, axes, output);
  } else {
    write_channels_last(image, axes, output);
  }
}

void AugmentationPlan::write_planar(const std::uint8_t* image, const Axes& axes,
                                    float* output) const {
  const auto [top, bottom] = axes.rows.visible();
  const auto [left, right] = axes.columns.visible();
  const std::int64_t width = output_.width;
  const auto convert = axes.columns.step > 0 ? row_functions().forward : row_functions().backward;
  for (const Channel& channel : channels_) {
    std::fill(output, output + top * width, channel.bias);
    for (std::int64_t y = top; y < bottom; ++y) {
      float* row = output + y * width;
      const std::int64_t source_y = axes.rows.origin + axes.rows.step * y;
      const std::int64_t source_x = axes.columns.origin + axes.columns.step * left;
      std::fill(row, row + left, channel.bias);
      convert(image + source_y * input_.width + source_x, right - left, channel.scale, channel.bias,
              row + left);
      std::fill(row + right, row + width, channel.bias);
    }
    std::fill(output + bottom * width, output + output_.height * width, channel.bias);
    image += input_.height * input_.width;
    output += output_.height * width;
  }
}

void AugmentationPlan::write_channels_last(const std::uint8_t* image, const Axes& axes,
                                           float* output) const {
  const auto [top, bottom] = axes.rows.visible();
  const auto [left, right] = axes.columns.visible();
  const std::int64_t width = output_.width;
  const std::int64_t count = input_.channels;
  const std::int64_t plane = input_.height * input_.width;
  const auto black = [&](float* begin, float* end) {
    while (begin < end) {
      for (const Channel& channel : channels_) *begin++ = channel.bias;
    }
  };
  const bool three = count == 3;  // the usual case has a loop of its own
  std::array<float, 3> scale{};
  std::array<float, 3> bias{};
  for (std::size_t c = 0; three && c < 3; ++c) {
    scale[c] = channels_[c].scale;
    bias[c] = channels_[c].bias;
  }
  const std::int64_t step = axes.columns.step;
  const auto convert3 = step > 0 ? row_functions().forward3 : row_functions().backward3;

  black(output, output + top * width * count);
  for (std::int64_t y = top; y < bottom; ++y) {
    float* row = output + y * width * count;
    black(row, row + left * count);
    const std::int64_t source_y = axes.rows.origin + axes.rows.step * y;
    const std::uint8_t* source =
        image + source_y * input_.width + axes.columns.origin + step * left;
    float* visible = row + left * count;
    if (three) {
      convert3(source, plane, right - left, scale.data(), bias.data(), visible);
    } else {
      for (std::int64_t i = 0; i < right - left; ++i) {
        for (std::int64_t c = 0; c < count; ++c) {
          visible[i * count + c] =
              static_cast<float>(source[c * plane + step * i]) * channels_[c].scale +
              channels_[c].bias;
        }
      }
    }
    black(row + right * count, row + width * count);
  }
  black(output + bottom * width * count, output + output_.height * width * count);
}

}  // namespace lockstep
