#include <lockstep/data/augment/recolor.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <numeric>

// Highway compiles this file once per instruction set and picks at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/data/augment/recolor.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lockstep::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using ColorFloats = hn::CappedTag<float, 16>;
using ColorIntegers = hn::Rebind<std::int32_t, ColorFloats>;
using ColorBytes = hn::Rebind<std::uint8_t, ColorFloats>;
using IntegerVector = hn::Vec<ColorIntegers>;

HWY_INLINE std::int64_t color_lanes() {
  return static_cast<std::int64_t>(hn::Lanes(ColorFloats()));
}

HWY_INLINE IntegerVector load_bytes(const std::uint8_t* bytes) {
  return hn::PromoteTo(ColorIntegers(), hn::LoadU(ColorBytes(), bytes));
}

// Stores integers as bytes; those that are too large or too small are clamped.
HWY_INLINE void store_bytes(IntegerVector value, std::uint8_t* bytes) {
  hn::StoreU(hn::DemoteTo(ColorBytes(), value), ColorBytes(), bytes);
}

HWY_INLINE IntegerVector gray_of(IntegerVector red, IntegerVector green, IntegerVector blue) {
  const ColorIntegers tag;
  const auto sum =
      hn::Add(hn::Add(hn::Mul(red, hn::Set(tag, 19595)), hn::Mul(green, hn::Set(tag, 38470))),
              hn::Add(hn::Mul(blue, hn::Set(tag, 7471)), hn::Set(tag, 1 << 15)));
  return hn::ShiftRight<16>(sum);
}

HWY_INLINE IntegerVector gray_at(const data::ColorPlanes& planes, std::int64_t i) {
  const std::uint8_t* bytes = planes.bytes + i;
  return gray_of(load_bytes(bytes), load_bytes(bytes + planes.stride),
                 load_bytes(bytes + 2 * planes.stride));
}

// Not MulAdd: PIL rounds the product. Conversion truncates.
HWY_INLINE IntegerVector blended(IntegerVector from, IntegerVector to,
                                 hn::Vec<ColorFloats> factor) {
  const ColorFloats tag;
  const auto change = hn::Mul(factor, hn::ConvertTo(tag, hn::Sub(to, from)));
  return hn::ConvertTo(ColorIntegers(), hn::Add(hn::ConvertTo(tag, from), change));
}

void blend_with_target(const data::ColorPlanes& planes, std::uint8_t from_byte,
                       float factor_number) {
  const auto from = hn::Set(ColorIntegers(), static_cast<std::int32_t>(from_byte));
  const auto factor = hn::Set(ColorFloats(), factor_number);
  for (std::int64_t i = 0; i < planes.channels * planes.stride; i += color_lanes()) {
    store_bytes(blended(from, load_bytes(planes.bytes + i), factor), planes.bytes + i);
  }
}

void gray_with_target(const data::ColorPlanes& planes) {
  for (std::int64_t i = 0; i < planes.stride; i += color_lanes()) {
    store_bytes(gray_at(planes, i), planes.bytes + i);
  }
}

std::int64_t sum_with_target(const data::ColorPlanes& planes) {
  // Limits the pixels of a part, so that no lane overflows.
  constexpr std::int64_t kPart = std::int64_t{1} << 20;
  const bool is_gray = planes.channels == 1;
  const auto grays_at = [&](std::int64_t i) {
    return is_gray ? load_bytes(planes.bytes + i) : gray_at(planes, i);
  };
  HWY_ALIGN std::int32_t lanes[16];
  const auto sum_of = [&](IntegerVector values, std::int64_t count) {
    hn::Store(values, ColorIntegers(), lanes);
    return std::accumulate(lanes, lanes + count, std::int64_t{0});
  };
  std::int64_t sum = 0;
  std::int64_t i = 0;
  while (i + color_lanes() <= planes.pixels) {
    const std::int64_t end = std::min(i + kPart, planes.pixels);
    auto sums = hn::Zero(ColorIntegers());
    for (; i + color_lanes() <= end; i += color_lanes()) sums = hn::Add(sums, grays_at(i));
    sum += sum_of(sums, color_lanes());
  }
  return i == planes.pixels ? sum : sum + sum_of(grays_at(i), planes.pixels - i);
}

void saturate_with_target(const data::ColorPlanes& planes, float factor_number) {
  const auto factor = hn::Set(ColorFloats(), factor_number);
  for (std::int64_t i = 0; i < planes.stride; i += color_lanes()) {
    const auto gray = gray_at(planes, i);
    for (int c = 0; c < 3; ++c) {
      std::uint8_t* bytes = planes.bytes + c * planes.stride + i;
      store_bytes(blended(gray, load_bytes(bytes), factor), bytes);
    }
  }
}

// Computes the hue as PIL does, some steps in float32 and some in float64; vectors therefore have
// the number of lanes of float64.
using Doubles = hn::CappedTag<double, 8>;
using HueFloats = hn::Rebind<float, Doubles>;
using HueIntegers = hn::Rebind<std::int32_t, Doubles>;
using HueBytes = hn::Rebind<std::uint8_t, Doubles>;
using DoubleVector = hn::Vec<Doubles>;
using HueFloatVector = hn::Vec<HueFloats>;
using HueVector = hn::Vec<HueIntegers>;

HWY_INLINE HueVector load_hue(const std::uint8_t* bytes) {
  return hn::PromoteTo(HueIntegers(), hn::LoadU(HueBytes(), bytes));
}
HWY_INLINE HueFloatVector to_float(HueVector value) { return hn::ConvertTo(HueFloats(), value); }
HWY_INLINE DoubleVector to_double(HueVector value) { return hn::PromoteTo(Doubles(), value); }
HWY_INLINE DoubleVector to_double(HueFloatVector value) { return hn::PromoteTo(Doubles(), value); }
HWY_INLINE HueFloatVector round_to_float(DoubleVector value) {
  return hn::DemoteTo(HueFloats(), value);
}
HWY_INLINE HueVector truncate(DoubleVector value) { return hn::DemoteTo(HueIntegers(), value); }

// HSV with bytes for hue (of the whole circle) and saturation; the value is the largest channel.
struct HueAndSaturation {
  HueVector hue;
  HueVector saturation;
};

HWY_INLINE HueAndSaturation to_hsv(HueVector red, HueVector green, HueVector blue,
                                   HueVector largest) {
  const HueIntegers integers;
  const Doubles doubles;
  const auto smallest = hn::Min(red, hn::Min(green, blue));
  // Grey pixels have no hue; with a range of 1 it is computed as 0.
  const auto one = hn::Set(integers, 1);
  const auto range = to_float(hn::Max(hn::Sub(largest, smallest), one));
  const auto saturation =
      hn::Div(to_float(hn::Sub(largest, smallest)), to_float(hn::Max(largest, one)));
  // The sector of the largest channel, and how far below it the channels before and after it are.
  const auto is_red = hn::Eq(red, largest);
  const auto is_green = hn::Eq(green, largest);
  const auto choose3 = [&](auto of_red, auto of_green, auto of_blue) {
    return hn::IfThenElse(is_red, of_red, hn::IfThenElse(is_green, of_green, of_blue));
  };
  const auto sector = choose3(hn::Zero(integers), hn::Set(integers, 2), hn::Set(integers, 4));
  const auto before = hn::Div(to_float(hn::Sub(largest, choose3(blue, red, green))), range);
  const auto after = hn::Div(to_float(hn::Sub(largest, choose3(green, blue, red))), range);
  const auto sixths =
      round_to_float(hn::Sub(hn::Add(to_double(sector), to_double(before)), to_double(after)));
  const auto unit = hn::Set(doubles, 1.0);
  const auto turned = hn::Add(hn::Div(to_double(sixths), hn::Set(doubles, 6.0)), unit);
  const auto hue =
      round_to_float(hn::IfThenElse(hn::Ge(turned, unit), hn::Sub(turned, unit), turned));
  const auto full = hn::Set(doubles, 255.0);
  return {truncate(hn::Mul(to_double(hue), full)), truncate(hn::Mul(to_double(saturation), full))};
}

struct Rgb {
  HueVector red;
  HueVector green;
  HueVector blue;
};

HWY_INLINE Rgb from_hsv(HueVector hue, HueVector saturation, HueVector value) {
  const HueIntegers integers;
  const Doubles doubles;
  const auto unit = hn::Set(doubles, 1.0);
  const auto sixths =
      hn::Div(hn::Mul(to_double(hue), hn::Set(doubles, 6.0)), hn::Set(doubles, 255.0));
  const auto sector = truncate(sixths);
  const auto rest = round_to_float(hn::Sub(sixths, to_double(sector)));
  const auto share = hn::Div(to_float(saturation), hn::Set(HueFloats(), 255.0F));
  // The middle channel falls in odd sectors and rises in even ones.
  const auto falling = to_double(hn::Mul(share, rest));
  const auto rising = hn::Mul(to_double(share), hn::Sub(unit, to_double(rest)));
  const auto parity = to_double(hn::And(sector, hn::Set(integers, 1)));
  const auto is_odd = hn::Eq(parity, unit);
  const auto of_value = [&](DoubleVector part) {
    const auto number = hn::Mul(to_double(value), hn::Sub(unit, part));
    return truncate(hn::Add(number, hn::Set(doubles, 0.5)));
  };
  const auto middle = of_value(hn::IfThenElse(is_odd, falling, rising));
  const auto smallest = of_value(to_double(share));
  // Byte 255 is in sector 6, which is sector 0.
  const auto is = [&](int number) { return hn::Eq(sector, hn::Set(integers, number)); };
  const auto first = hn::Or(is(0), is(6));
  const auto pick = [&](auto largest_in, auto middle_in) {
    return hn::IfThenElse(largest_in, value, hn::IfThenElse(middle_in, middle, smallest));
  };
  return {pick(hn::Or(first, is(5)), hn::Or(is(1), is(4))),
          pick(hn::Or(is(1), is(2)), hn::Or(first, is(3))),
          pick(hn::Or(is(3), is(4)), hn::Or(is(2), is(5)))};
}

void hue_with_target(const data::ColorPlanes& planes, int shift) {
  const HueIntegers integers;
  const auto store = [](HueVector value, std::uint8_t* bytes) {
    hn::StoreU(hn::DemoteTo(HueBytes(), value), HueBytes(), bytes);
  };
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Doubles()));
  for (std::int64_t i = 0; i < planes.stride; i += lanes) {
    std::uint8_t* bytes = planes.bytes + i;
    const auto red = load_hue(bytes);
    const auto green = load_hue(bytes + planes.stride);
    const auto blue = load_hue(bytes + 2 * planes.stride);
    const auto largest = hn::Max(red, hn::Max(green, blue));
    const HueAndSaturation hsv = to_hsv(red, green, blue, largest);
    const auto hue = hn::And(hn::Add(hsv.hue, hn::Set(integers, shift)), hn::Set(integers, 255));
    const Rgb rgb = from_hsv(hue, hsv.saturation, largest);
    store(rgb.red, bytes);
    store(rgb.green, bytes + planes.stride);
    store(rgb.blue, bytes + 2 * planes.stride);
  }
}

// Splits a row of interleaved channels into three planes.
void deinterleave_with_target(const std::uint8_t* pixels, std::int64_t count, std::uint8_t* planes,
                              std::int64_t stride) {
  const hn::CappedTag<std::uint8_t, 16> tag;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(tag));
  const auto turn = [&](std::int64_t x) {
    hn::Vec<decltype(tag)> channels[3];
    hn::LoadInterleaved3(tag, pixels + 3 * x, channels[0], channels[1], channels[2]);
    for (int c = 0; c < 3; ++c) hn::StoreU(channels[c], tag, planes + c * stride + x);
  };
  std::int64_t x = 0;
  for (; x + lanes <= count; x += lanes) turn(x);
  if (x == count) return;
  if (count >= lanes) return turn(count - lanes);
  for (; x < count; ++x) {
    for (int c = 0; c < 3; ++c) planes[c * stride + x] = pixels[3 * x + c];
  }
}

}  // namespace
}  // namespace lockstep::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {
namespace {

HWY_EXPORT(blend_with_target);
HWY_EXPORT(gray_with_target);
HWY_EXPORT(sum_with_target);
HWY_EXPORT(saturate_with_target);
HWY_EXPORT(hue_with_target);
HWY_EXPORT(deinterleave_with_target);

}  // namespace

data::ColorPlanes data::copy_planes(const ImageView& source, std::vector<std::uint8_t>& memory) {
  const auto [channels, height, width] = source.shape;
  const std::int64_t pixels = height * width;
  const std::int64_t stride =
      (pixels + data::kPlaneBlock - 1) / data::kPlaneBlock * data::kPlaneBlock;
  memory.resize(static_cast<std::size_t>(channels * stride));
  for (std::int64_t y = 0; y < height; ++y) {
    const std::uint8_t* row = source.pixels + y * source.row_stride;
    std::uint8_t* plane_row = memory.data() + y * width;
    if (channels == 3 && source.channel_stride == 1 && source.pixel_stride == 3) {
      HWY_DYNAMIC_DISPATCH(deinterleave_with_target)(row, width, plane_row, stride);
      continue;
    }
    for (std::int64_t c = 0; c < channels; ++c) {
      const std::uint8_t* from = row + c * source.channel_stride;
      std::uint8_t* to = plane_row + c * stride;
      if (source.pixel_stride == 1) {
        std::memcpy(to, from, static_cast<std::size_t>(width));
      } else {
        for (std::int64_t x = 0; x < width; ++x) to[x] = from[x * source.pixel_stride];
      }
    }
  }
  return {memory.data(), channels, pixels, stride};
}

std::uint8_t data::blend(std::uint8_t from, std::uint8_t to, float factor) {
  const float value = static_cast<float>(from) + factor * static_cast<float>(to - from);
  return static_cast<std::uint8_t>(std::clamp(value, 0.0F, 255.0F));
}

void data::blend_planes(const data::ColorPlanes& planes, std::uint8_t from, float factor) {
  HWY_DYNAMIC_DISPATCH(blend_with_target)(planes, from, factor);
}

std::int64_t data::sum_grays(const data::ColorPlanes& planes) {
  return HWY_DYNAMIC_DISPATCH(sum_with_target)(planes);
}

void data::make_gray(const data::ColorPlanes& planes) {
  if (planes.channels == 3) HWY_DYNAMIC_DISPATCH(gray_with_target)(planes);
}

void data::adjust_saturation(const data::ColorPlanes& planes, float factor) {
  HWY_DYNAMIC_DISPATCH(saturate_with_target)(planes, factor);
}

void data::adjust_hue(const data::ColorPlanes& planes, int shift) {
  HWY_DYNAMIC_DISPATCH(hue_with_target)(planes, shift);
}

}  // namespace lockstep
#endif
