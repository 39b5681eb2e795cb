#include <lockstep/data/augment/write_image.h>

#include <algorithm>
#include <array>
#include <tuple>

// Highway compiles this file once per instruction set and picks at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/data/augment/write_image.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lockstep::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::CappedTag<float, 16>;
using Bytes = hn::Rebind<std::uint8_t, Floats>;
using Integers = hn::Rebind<std::int32_t, Floats>;
using Words = hn::Rebind<std::uint32_t, Floats>;
using Halves = hn::Rebind<std::uint16_t, Floats>;
using FloatVector = hn::Vec<Floats>;
using HalfVector = hn::Vec<Halves>;

// Rows are written in blocks of this number of pixels, at any alignment.
constexpr std::int64_t kBlock = 16;

HWY_INLINE std::int64_t lanes() { return static_cast<std::int64_t>(hn::Lanes(Floats())); }

// Conversion of a float to an element of the output.
struct Float32 {
  using Element = float;
  static HWY_INLINE void store(FloatVector value, Element* output) {
    hn::StoreU(value, Floats(), output);
  }
};

struct BFloat16 {
  using Element = std::uint16_t;
  // The upper half of the bits, rounded to nearest even; there are no NaNs.
  static HWY_INLINE void store(FloatVector value, Element* output) {
    const Words tag;
    const auto bits = hn::BitCast(tag, value);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(tag, 1));
    const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(tag, 0x7FFF))));
    hn::StoreU(hn::DemoteTo(Halves(), hn::BitCast(Integers(), rounded)), Halves(), output);
  }
};

struct Float16 {
  using Element = std::uint16_t;
  static HWY_INLINE void store(FloatVector value, Element* output) {
    const hn::Rebind<hwy::float16_t, Floats> tag;
    hn::StoreU(hn::BitCast(Halves(), hn::DemoteTo(tag, value)), Halves(), output);
  }
};

template <class Type>
typename Type::Element convert(float value) {
  typename Type::Element elements[kBlock];
  Type::store(hn::Set(Floats(), value), elements);
  return elements[0];
}

// A row of the source for one output row: pixel x is at source[x * step].
struct SourceRow {
  const std::uint8_t* pixels;
  std::int64_t step;            // in pixels: 1, or -1 for a mirrored row
  std::int64_t pixel_stride;    // in bytes
  std::int64_t channel_stride;  // in bytes

  std::uint8_t at(std::int64_t x, std::int64_t channel) const {
    return pixels[x * step * pixel_stride + channel * channel_stride];
  }
};

HWY_INLINE FloatVector scaled(hn::Vec<Bytes> bytes, const data::ChannelScale& channel) {
  const Floats tag;
  const auto value = hn::ConvertTo(tag, hn::PromoteTo(Integers(), bytes));
  // Not MulAdd, whose single rounding would depend on the instruction set.
  return hn::Add(hn::Mul(value, hn::Set(tag, channel.scale)), hn::Set(tag, channel.bias));
}

// Loads pixels [x, x + lanes) of a row whose pixels are contiguous in memory.
template <int kStep>
HWY_INLINE FloatVector load(const std::uint8_t* row, std::int64_t x,
                            const data::ChannelScale& channel) {
  if constexpr (kStep > 0) {
    return scaled(hn::LoadU(Bytes(), row + x), channel);
  } else {
    return hn::Reverse(Floats(), scaled(hn::LoadU(Bytes(), row - x - (lanes() - 1)), channel));
  }
}

// One channel of a source with contiguous pixels.
template <class Type, int kStep>
struct PlaneBlock {
  static constexpr std::int64_t kOutputs = 1;
  const data::ChannelScale* channel;

  HWY_INLINE void operator()(const SourceRow& row, std::int64_t x,
                             typename Type::Element* output) const {
    for (std::int64_t i = 0; i < kBlock; i += lanes()) {
      Type::store(load<kStep>(row.pixels, x + i, *channel), output + i);
    }
  }
};

// Three channels of a planar source, interleaved in the output.
template <class Type, int kStep>
struct InterleavingBlock {
  static constexpr std::int64_t kOutputs = 3;
  const data::ChannelScale* channels;

  HWY_INLINE void operator()(const SourceRow& row, std::int64_t x,
                             typename Type::Element* output) const {
    const auto value = [&](std::int64_t i, int c) {
      return load<kStep>(row.pixels + c * row.channel_stride, x + i, channels[c]);
    };
    if constexpr (sizeof(typename Type::Element) == sizeof(float)) {
      for (std::int64_t i = 0; i < kBlock; i += lanes()) {
        hn::StoreInterleaved3(value(i, 0), value(i, 1), value(i, 2), Floats(), output + 3 * i);
      }
    } else {
      HWY_ALIGN float floats[3 * kBlock];
      for (std::int64_t i = 0; i < kBlock; i += lanes()) {
        hn::StoreInterleaved3(value(i, 0), value(i, 1), value(i, 2), Floats(), floats + 3 * i);
      }
      for (std::int64_t i = 0; i < 3 * kBlock; i += lanes()) {
        Type::store(hn::LoadU(Floats(), floats + i), output + i);
      }
    }
  }
};

// Three channels of a planar source to planes that are `plane` elements apart.
template <class Type, int kStep>
struct ThreePlanesBlock {
  static constexpr std::int64_t kOutputs = 1;
  const data::ChannelScale* channels;
  std::int64_t plane;

  HWY_INLINE void operator()(const SourceRow& row, std::int64_t x,
                             typename Type::Element* output) const {
    for (int c = 0; c < 3; ++c) {
      const std::uint8_t* pixels = row.pixels + c * row.channel_stride;
      for (std::int64_t i = 0; i < kBlock; i += lanes()) {
        Type::store(load<kStep>(pixels, x + i, channels[c]), output + c * plane + i);
      }
    }
  }
};

// Three channels of an interleaved source, for a block that needs a planar one.
template <class PlanarBlock>
struct DeinterleavingBlock {
  static constexpr std::int64_t kOutputs = PlanarBlock::kOutputs;
  PlanarBlock block;

  template <class Element>
  HWY_INLINE void operator()(const SourceRow& row, std::int64_t x, Element* output) const {
    const hn::CappedTag<std::uint8_t, kBlock> tag;
    const std::uint8_t* pixels = row.pixels + 3 * (row.step > 0 ? x : 1 - kBlock - x);
    HWY_ALIGN std::uint8_t planes[3 * kBlock];
    for (std::int64_t i = 0; i < kBlock; i += static_cast<std::int64_t>(hn::Lanes(tag))) {
      hn::Vec<decltype(tag)> channels[3];
      hn::LoadInterleaved3(tag, pixels + 3 * i, channels[0], channels[1], channels[2]);
      for (int c = 0; c < 3; ++c) hn::StoreU(channels[c], tag, planes + c * kBlock + i);
    }
    block(SourceRow{planes + (row.step > 0 ? 0 : kBlock - 1), row.step, 1, kBlock}, 0, output);
  }
};

// A row of at least a block.
template <class Block, class Element>
void write_blocks(const Block& block, const SourceRow& row, std::int64_t count, Element* output) {
  std::int64_t x = 0;
  for (; x + kBlock <= count; x += kBlock) block(row, x, output + Block::kOutputs * x);
  if (x == count) return;
  x = count - kBlock;  // repeats some of the previous pixels
  block(row, x, output + Block::kOutputs * x);
}

template <class Block, class Element>
void write_row(const Block& block, const SourceRow& row, std::int64_t count, Element* output) {
  if (count >= kBlock) return write_blocks(block, row, count, output);
  std::uint8_t pixels[Block::kOutputs * kBlock] = {};
  const std::int64_t first = row.step > 0 ? 0 : kBlock - 1;
  for (std::int64_t c = 0; c < Block::kOutputs; ++c) {
    for (std::int64_t x = 0; x < count; ++x) {
      pixels[c * kBlock + first + row.step * x] = row.at(x, c);
    }
  }
  Element elements[Block::kOutputs * kBlock];
  block(SourceRow{pixels + first, row.step, 1, kBlock}, 0, elements);
  std::copy_n(elements, Block::kOutputs * count, output);
}

// The sources of the output's rows and columns, and the loops that write them.
template <class Type>
class Writer {
 public:
  using Element = typename Type::Element;

  explicit Writer(const data::ImageWrite& write)
      : write_(write),
        channels_(write.source.shape.channels),
        height_(write.rows.size),
        width_(write.columns.size) {
    std::tie(top_, bottom_) = write.rows.visible();
    std::tie(left_, right_) = write.columns.visible();
    if (left_ == right_) bottom_ = top_;
  }

  void write() {
    auto* output = static_cast<Element*>(write_.output);
    if (write_.layout == data::Layout::kPlanar && has_interleaved_blocks()) {
      write_three_planes(output);
    } else if (write_.layout == data::Layout::kPlanar || channels_ == 1) {
      for (std::int64_t c = 0; c < channels_; ++c) {
        write_plane(c, output + c * height_ * width_);
      }
    } else {
      write_pixels(output);
    }
    for (const data::Erasure& erasure : write_.erasures) erase(erasure, output);
  }

 private:
  // Whether the source's three channels lie side by side, in rows of at least a block.
  bool has_interleaved_blocks() const {
    const ImageView& source = write_.source;
    return channels_ == 3 && source.channel_stride == 1 && source.pixel_stride == 3 &&
           right_ - left_ >= kBlock;
  }

  SourceRow source_row(std::int64_t y, std::int64_t channel) const {
    const ImageView& source = write_.source;
    const std::int64_t row = write_.rows.origin + write_.rows.step * y;
    const std::int64_t column = write_.columns.origin + write_.columns.step * left_;
    return {source.pixels + channel * source.channel_stride + row * source.row_stride +
                column * source.pixel_stride,
            write_.columns.step, source.pixel_stride, source.channel_stride};
  }

  Element shown(float value, bool is_byte, std::int64_t channel) const {
    const data::ChannelScale& scale = write_.channels[channel];
    return convert<Type>(is_byte ? value * scale.scale + scale.bias : value);
  }

  void write_plane(std::int64_t channel, Element* output) const {
    const bool neighbours = write_.source.pixel_stride == 1;
    const Element fill = shown(write_.fill, true, channel);
    const data::ChannelScale& scale = write_.channels[channel];
    std::fill(output, output + top_ * width_, fill);
    for (std::int64_t y = top_; y < bottom_; ++y) {
      Element* row = output + y * width_;
      const SourceRow source = source_row(y, channel);
      std::fill(row, row + left_, fill);
      if (!neighbours) {
        write_slowly(source, 1, channel, row + left_);
      } else if (source.step > 0) {
        write_row(PlaneBlock<Type, 1>{&scale}, source, right_ - left_, row + left_);
      } else {
        write_row(PlaneBlock<Type, -1>{&scale}, source, right_ - left_, row + left_);
      }
      std::fill(row + right_, row + width_, fill);
    }
    std::fill(output + bottom_ * width_, output + height_ * width_, fill);
  }

  void write_three_planes(Element* output) const {
    const std::int64_t plane = height_ * width_;
    const auto fill = [&](std::int64_t first, std::int64_t count) {
      for (std::int64_t c = 0; c < channels_ && count > 0; ++c) {
        std::fill_n(output + c * plane + first, count, shown(write_.fill, true, c));
      }
    };
    const data::ChannelScale* channels = write_.channels.data();
    fill(0, top_ * width_);
    for (std::int64_t y = top_; y < bottom_; ++y) {
      Element* visible = output + y * width_ + left_;
      const SourceRow source = source_row(y, 0);
      fill(y * width_, left_);
      if (source.step > 0) {
        const DeinterleavingBlock<ThreePlanesBlock<Type, 1>> block{{channels, plane}};
        write_blocks(block, source, right_ - left_, visible);
      } else {
        const DeinterleavingBlock<ThreePlanesBlock<Type, -1>> block{{channels, plane}};
        write_blocks(block, source, right_ - left_, visible);
      }
      fill(y * width_ + right_, width_ - right_);
    }
    fill(bottom_ * width_, (height_ - bottom_) * width_);
  }

  void write_pixels(Element* output) const {
    const bool interleaved = has_interleaved_blocks();
    const bool planar = channels_ == 3 && write_.source.pixel_stride == 1;
    fill_pixels(output, top_ * width_);
    for (std::int64_t y = top_; y < bottom_; ++y) {
      Element* row = output + y * width_ * channels_;
      Element* visible = row + left_ * channels_;
      const SourceRow source = source_row(y, 0);
      fill_pixels(row, left_);
      if (interleaved && source.step > 0) {
        const DeinterleavingBlock<InterleavingBlock<Type, 1>> block{{write_.channels.data()}};
        write_blocks(block, source, right_ - left_, visible);
      } else if (interleaved) {
        const DeinterleavingBlock<InterleavingBlock<Type, -1>> block{{write_.channels.data()}};
        write_blocks(block, source, right_ - left_, visible);
      } else if (!planar) {
        write_slowly(source, channels_, 0, visible);
      } else if (source.step > 0) {
        const InterleavingBlock<Type, 1> block{write_.channels.data()};
        write_row(block, source, right_ - left_, visible);
      } else {
        const InterleavingBlock<Type, -1> block{write_.channels.data()};
        write_row(block, source, right_ - left_, visible);
      }
      fill_pixels(row + right_ * channels_, width_ - right_);
    }
    fill_pixels(output + bottom_ * width_ * channels_, (height_ - bottom_) * width_);
  }

  // `count` channels from `first` on, at any stride in the source.
  void write_slowly(const SourceRow& source, std::int64_t count, std::int64_t first,
                    Element* output) const {
    Element elements[kBlock];
    float floats[kBlock] = {};
    const std::int64_t numbers = (right_ - left_) * count;
    for (std::int64_t begin = 0; begin < numbers; begin += kBlock) {
      const std::int64_t end = std::min(begin + kBlock, numbers);
      for (std::int64_t i = begin; i < end; ++i) {
        const data::ChannelScale& scale = write_.channels[first + i % count];
        floats[i - begin] =
            static_cast<float>(source.at(i / count, i % count)) * scale.scale + scale.bias;
      }
      for (std::int64_t i = 0; i < kBlock; i += lanes()) {
        Type::store(hn::LoadU(Floats(), floats + i), elements + i);
      }
      std::copy_n(elements, end - begin, output + begin);
    }
  }

  void fill_pixels(Element* output, std::int64_t count) const {
    if (count == 0) return;
    for (std::int64_t c = 0; c < channels_; ++c) {
      const Element fill = shown(write_.fill, true, c);
      for (std::int64_t i = 0; i < count; ++i) output[i * channels_ + c] = fill;
    }
  }

  void erase(const data::Erasure& area, Element* output) const {
    const bool planar = write_.layout == data::Layout::kPlanar;
    const std::int64_t pixel = planar ? 1 : channels_;
    for (std::int64_t c = 0; c < channels_; ++c) {
      const Element value = shown(area.value, area.is_byte, c);
      Element* corner =
          output + (planar ? c * height_ * width_ : c) + (area.top * width_ + area.left) * pixel;
      for (std::int64_t y = 0; y < area.height; ++y) {
        Element* row = corner + y * width_ * pixel;
        for (std::int64_t x = 0; x < area.width; ++x) row[x * pixel] = value;
      }
    }
  }

  const data::ImageWrite& write_;
  const std::int64_t channels_, height_, width_;
  std::int64_t top_ = 0, bottom_ = 0, left_ = 0, right_ = 0;  // the area that shows the source
};

void write_with_target(const data::ImageWrite& write) {
  switch (write.type) {
    case data::PixelType::kFloat32:
      return Writer<Float32>(write).write();
    case data::PixelType::kBFloat16:
      return Writer<BFloat16>(write).write();
    case data::PixelType::kFloat16:
      return Writer<Float16>(write).write();
  }
}

}  // namespace
}  // namespace lockstep::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {
namespace {

HWY_EXPORT(write_with_target);

// Whether the rows are contiguous in both the source and the output.
bool is_one_piece(const data::ImageWrite& write) {
  return write.rows.is_window() && write.columns.is_window() && write.erasures.empty() &&
         write.source.row_stride == write.columns.size * write.source.pixel_stride;
}

// Short rows, such as the 28 pixels of MNIST, would consist mostly of remainders of blocks.
data::ImageWrite in_one_row(data::ImageWrite write) {
  ImageView& source = write.source;
  source.pixels += write.rows.origin * source.row_stride;
  const std::int64_t pixels = write.rows.size * write.columns.size;
  source.shape = {source.shape.channels, 1, pixels};
  write.rows = {.size = 1};
  write.columns = {.size = pixels};
  return write;
}

}  // namespace

void data::write_image(const data::ImageWrite& write) {
  HWY_DYNAMIC_DISPATCH(write_with_target)(is_one_piece(write) ? in_one_row(write) : write);
}

}  // namespace lockstep
#endif
