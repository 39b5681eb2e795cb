#include <lockstep/data/augment/byte_rows.h>

#include <algorithm>

// Highway compiles this file once per instruction set and picks at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/data/augment/byte_rows.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lockstep::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using Integers = hn::CappedTag<std::int32_t, 16>;
using Bytes = hn::Rebind<std::uint8_t, Integers>;

constexpr int kPrecisionBits = 22;
constexpr std::int32_t kHalf = 1 << (kPrecisionBits - 1);
constexpr std::int64_t kBlock = 16;  // block of the transposition, in both directions

// Computes one output row.
void combine(const std::uint8_t* rows, std::int64_t stride, std::int64_t length,
             const data::RowWindow& window, std::uint8_t* output) {
  const Integers tag;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(tag));
  const auto sum_at = [&](std::int64_t x) {
    auto sum = hn::Set(tag, kHalf);
    for (std::int64_t i = 0; i < window.count; ++i) {
      const auto pixels = hn::PromoteTo(tag, hn::LoadU(Bytes(), rows + i * stride + x));
      sum = hn::Add(sum, hn::Mul(pixels, hn::Set(tag, window.weights[i])));
    }
    hn::StoreU(hn::DemoteTo(Bytes(), hn::ShiftRight<kPrecisionBits>(sum)), Bytes(), output + x);
  };
  std::int64_t x = 0;
  for (; x + lanes <= length; x += lanes) sum_at(x);
  if (x == length) return;
  if (length >= lanes) return sum_at(length - lanes);  // repeats some of the previous bytes
  for (; x < length; ++x) {
    std::int32_t sum = kHalf;
    for (std::int64_t i = 0; i < window.count; ++i) sum += rows[i * stride + x] * window.weights[i];
    output[x] = static_cast<std::uint8_t>(std::clamp(sum >> kPrecisionBits, 0, 255));
  }
}

void combine_with_target(const std::uint8_t* input, std::int64_t input_stride, std::int64_t length,
                         std::span<const data::RowWindow> windows, std::uint8_t* output,
                         std::int64_t output_stride) {
  for (const data::RowWindow& window : windows) {
    combine(input + window.first * input_stride, input_stride, length, window, output);
    output += output_stride;
  }
}

#if HWY_TARGET == HWY_SCALAR
constexpr bool kHasBlocks = false;
void transpose_block(const std::uint8_t*, std::int64_t, std::uint8_t*, std::int64_t) {}
#else
constexpr bool kHasBlocks = true;
// Transposes 16 x 16 bytes. Interleaving row i with row i + 8, four times, moves the row index from
// the vector to the position in it, as in a perfect shuffle.
HWY_INLINE void transpose_block(const std::uint8_t* input, std::int64_t input_stride,
                                std::uint8_t* output, std::int64_t output_stride) {
  const hn::Full128<std::uint8_t> tag;
  using Vector = hn::Vec<decltype(tag)>;
  Vector rows[kBlock];
  for (std::int64_t y = 0; y < kBlock; ++y) rows[y] = hn::LoadU(tag, input + y * input_stride);
  for (int stage = 0; stage < 4; ++stage) {
    Vector shuffled[kBlock];
    for (std::int64_t y = 0; y < kBlock / 2; ++y) {
      shuffled[2 * y] = hn::InterleaveLower(tag, rows[y], rows[y + kBlock / 2]);
      shuffled[2 * y + 1] = hn::InterleaveUpper(tag, rows[y], rows[y + kBlock / 2]);
    }
    for (std::int64_t y = 0; y < kBlock; ++y) rows[y] = shuffled[y];
  }
  for (std::int64_t x = 0; x < kBlock; ++x) hn::StoreU(rows[x], tag, output + x * output_stride);
}
#endif

void transpose_with_target(const std::uint8_t* input, std::int64_t input_stride, std::int64_t rows,
                           std::int64_t columns, std::uint8_t* output, std::int64_t output_stride) {
  const auto one_by_one = [&](std::int64_t top, std::int64_t bottom, std::int64_t left,
                              std::int64_t right) {
    for (std::int64_t y = top; y < bottom; ++y) {
      for (std::int64_t x = left; x < right; ++x) {
        output[x * output_stride + y] = input[y * input_stride + x];
      }
    }
  };
  const std::int64_t whole_rows = kHasBlocks ? rows / kBlock * kBlock : 0;
  const std::int64_t whole_columns = columns / kBlock * kBlock;
  for (std::int64_t y = 0; y < whole_rows; y += kBlock) {
    for (std::int64_t x = 0; x < whole_columns; x += kBlock) {
      transpose_block(input + y * input_stride + x, input_stride, output + x * output_stride + y,
                      output_stride);
    }
  }
  one_by_one(0, whole_rows, whole_columns, columns);
  one_by_one(whole_rows, rows, 0, columns);
}

}  // namespace
}  // namespace lockstep::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {
namespace {

HWY_EXPORT(combine_with_target);
HWY_EXPORT(transpose_with_target);

}  // namespace

void data::combine_rows(const std::uint8_t* input, std::int64_t input_stride, std::int64_t length,
                        std::span<const data::RowWindow> windows, std::uint8_t* output,
                        std::int64_t output_stride) {
  HWY_DYNAMIC_DISPATCH(combine_with_target)
  (input, input_stride, length, windows, output, output_stride);
}

void data::transpose_bytes(const std::uint8_t* input, std::int64_t input_stride, std::int64_t rows,
                           std::int64_t columns, std::uint8_t* output, std::int64_t output_stride) {
  HWY_DYNAMIC_DISPATCH(transpose_with_target)
  (input, input_stride, rows, columns, output, output_stride);
}

}  // namespace lockstep
#endif
