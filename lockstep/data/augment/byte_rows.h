// Weighted sums of rows of bytes, which both passes of a resize compute, and the transposition
// between rows and columns.
#pragma once

#include <cstdint>
#include <span>

namespace lockstep::data {

/// The input rows that are averaged into one output row: `count` rows from `first` on. The weights
/// sum to 2^22.
struct RowWindow {
  std::int64_t first;
  std::int64_t count;
  const std::int32_t* weights;
};

/// Sets output row k to the weighted sum of the input's rows in windows[k], rounded. Each row has
/// `length` bytes.
void combine_rows(const std::uint8_t* input, std::int64_t input_stride, std::int64_t length,
                  std::span<const RowWindow> windows, std::uint8_t* output,
                  std::int64_t output_stride);

/// Sets output[x * output_stride + y] = input[y * input_stride + x] for y < rows, x < columns.
void transpose_bytes(const std::uint8_t* input, std::int64_t input_stride, std::int64_t rows,
                     std::int64_t columns, std::uint8_t* output, std::int64_t output_stride);

}  // namespace lockstep::data
