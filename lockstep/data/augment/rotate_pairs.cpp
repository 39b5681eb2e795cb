#include <lockstep/data/augment/rotate_pairs.h>

#include <algorithm>
#include <cstddef>

// Highway compiles this file once per instruction set and picks at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/data/augment/rotate_pairs.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lockstep::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using Coordinates = hn::CappedTag<double, 8>;
using Pairs = hn::RebindToUnsigned<Coordinates>;
using Indices = hn::RebindToSigned<Coordinates>;
using CoordinateVector = hn::Vec<Coordinates>;
using PairVector = hn::Vec<Pairs>;

constexpr std::int64_t kMostLanes = 8;
// Adding this to a whole number below 2^52 leaves the number in the lowest bits.
constexpr double kWhole = 0x1p52;

HWY_INLINE CoordinateVector byte_to_double(PairVector bits) {
  const Coordinates tag;
  const auto byte = hn::And(bits, hn::Set(Pairs(), std::uint64_t{255}));
  const auto whole = hn::BitCast(Pairs(), hn::Set(tag, kWhole));
  return hn::Sub(hn::BitCast(tag, hn::Or(byte, whole)), hn::Set(tag, kWhole));
}

// Not MulAdd: PIL rounds the product.
HWY_INLINE CoordinateVector mix(CoordinateVector from, CoordinateVector to,
                                CoordinateVector share) {
  return hn::Add(from, hn::Mul(hn::Sub(to, from), share));
}

struct PairRow {
  const std::uint64_t* pairs;
  const ImageShape& shape;
  const data::Rotation& rotation;
  double y;
  double fill;

  // Pixels [x, x + lanes) of the output; channel c at output[c * stride].
  HWY_INLINE void write(std::int64_t x, std::uint8_t* output, std::int64_t stride) const {
    const Coordinates tag;
    const auto set = [&](double number) { return hn::Set(tag, number); };
    const auto& m = rotation.matrix;
    const auto right = hn::Add(hn::Iota(tag, static_cast<double>(x)), set(0.5));
    const auto source_at = [&](double per_x, double per_y, double shift) {
      return hn::Add(hn::Add(hn::Mul(set(per_x), right), set(per_y * y)), set(shift));
    };
    const auto source_x = source_at(m[0], m[1], m[2]);
    const auto source_y = source_at(m[3], m[4], m[5]);
    const auto within = [&](CoordinateVector at, std::int64_t size) {
      return hn::And(hn::Ge(at, set(0)), hn::Lt(at, set(static_cast<double>(size))));
    };
    const auto inside = hn::And(within(source_x, shape.width), within(source_y, shape.height));
    const auto centered_x = hn::Sub(source_x, set(0.5));
    const auto centered_y = hn::Sub(source_y, set(0.5));
    const auto left = hn::Floor(centered_x);
    const auto top = hn::Floor(centered_y);
    const auto share_x = hn::Sub(centered_x, left);
    const auto share_y = hn::Sub(centered_y, top);
    // The frame begins at -1.
    const auto row_length = set(static_cast<double>(shape.width + 1));
    const auto place = hn::Add(hn::Mul(hn::Add(top, set(1)), row_length), hn::Add(left, set(1)));
    const auto known_place = hn::Add(hn::IfThenElseZero(inside, place), set(kWhole));
    const auto index = hn::And(hn::BitCast(Indices(), known_place),
                               hn::Set(Indices(), (std::int64_t{1} << 52) - 1));
    auto upper = hn::GatherIndex(Pairs(), pairs, index);
    auto lower = hn::GatherIndex(Pairs(), pairs + shape.width + 1, index);
    for (std::int64_t c = 0; c < shape.channels; ++c) {
      const auto from =
          mix(byte_to_double(upper), byte_to_double(hn::ShiftRight<32>(upper)), share_x);
      const auto to =
          mix(byte_to_double(lower), byte_to_double(hn::ShiftRight<32>(lower)), share_x);
      const auto value = hn::IfThenElse(inside, mix(from, to, share_y), set(fill));
      const hn::Rebind<std::int32_t, Coordinates> integers;
      const hn::Rebind<std::uint8_t, Coordinates> bytes;
      hn::StoreU(hn::DemoteTo(bytes, hn::DemoteTo(integers, value)), bytes, output + c * stride);
      upper = hn::ShiftRight<8>(upper);
      lower = hn::ShiftRight<8>(lower);
    }
  }
};

void rotate_with_target(const std::uint64_t* pairs, const ImageShape& shape,
                        const data::Rotation& rotation, std::uint8_t fill, std::uint8_t* output) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Coordinates()));
  const std::int64_t width = rotation.width;
  const std::int64_t plane = rotation.height * width;
  for (std::int64_t y = 0; y < rotation.height; ++y, output += width) {
    const PairRow row{pairs, shape, rotation, static_cast<double>(y) + 0.5,
                      static_cast<double>(fill)};
    std::int64_t x = 0;
    for (; x + lanes <= width; x += lanes) row.write(x, output + x, plane);
    if (x == width) continue;
    if (width >= lanes) {  // repeats some of the previous pixels
      row.write(width - lanes, output + width - lanes, plane);
      continue;
    }
    std::uint8_t narrow[data::kPairChannels * kMostLanes];
    row.write(0, narrow, kMostLanes);
    for (std::int64_t c = 0; c < shape.channels; ++c) {
      std::copy_n(narrow + c * kMostLanes, width, output + c * plane);
    }
  }
}

}  // namespace
}  // namespace lockstep::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {
namespace {

HWY_EXPORT(rotate_with_target);

template <int kChannels>
void make_pairs_of(const ImageView& source, std::vector<std::uint64_t>& pairs) {
  const std::int64_t height = source.shape.height;
  const std::int64_t width = source.shape.width;
  pairs.resize(static_cast<std::size_t>((height + 2) * (width + 1)));
  for (std::int64_t y = -1; y <= height; ++y) {
    const std::int64_t row = std::clamp<std::int64_t>(y, 0, height - 1);
    const std::uint8_t* pixels = source.pixels + row * source.row_stride;
    const auto pixel_at = [&](std::int64_t x) {
      std::uint64_t pixel = 0;
      for (int c = 0; c < kChannels; ++c) {
        pixel |= std::uint64_t{pixels[c * source.channel_stride + x * source.pixel_stride]}
                 << (8 * c);
      }
      return pixel;
    };
    std::uint64_t* pair = pairs.data() + (y + 1) * (width + 1);
    std::uint64_t left = pixel_at(0);
    for (std::int64_t x = 0; x < width; ++x) {
      const std::uint64_t right = pixel_at(x);
      pair[x] = left | right << 32;
      left = right;
    }
    pair[width] = left | left << 32;
  }
}

}  // namespace

void data::make_pairs(const ImageView& source, std::vector<std::uint64_t>& pairs) {
  switch (source.shape.channels) {
    case 1:
      return make_pairs_of<1>(source, pairs);
    case 2:
      return make_pairs_of<2>(source, pairs);
    case 3:
      return make_pairs_of<3>(source, pairs);
    default:
      return make_pairs_of<4>(source, pairs);
  }
}

void data::rotate_pairs(const std::uint64_t* pairs, const ImageShape& shape,
                        const data::Rotation& rotation, std::uint8_t fill, std::uint8_t* output) {
  HWY_DYNAMIC_DISPATCH(rotate_with_target)(pairs, shape, rotation, fill, output);
}

}  // namespace lockstep
#endif
