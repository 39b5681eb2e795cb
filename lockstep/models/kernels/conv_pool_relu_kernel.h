// Raw kernels of relu(max_pool2d(conv2d(x, w, b), 2)) for few channels, on plain pointers and
// without LibTorch.
//
// Layouts are NCHW, contiguous. The convolution has stride 1 and no padding; its output, which
// never reaches memory, is pooled in 2x2 windows while it is still in registers. For each pooled
// value one byte is stored: the position of the window's maximum, 0 to 3 in row-major order (the
// first of equal values, as in ATen; a NaN counts as the maximum), or kInactive if the ReLU made it
// zero.
//
// Those bytes make the backward pass sparse: at most a quarter of the convolution's output has a
// gradient, often much less (ReLU, dropped channels), and only those positions are visited.
#pragma once

#include <cstdint>

namespace lockstep::kernels {

struct ConvPoolShape {
  std::int64_t channels_in = 0;
  std::int64_t height = 0;  ///< height of the input
  std::int64_t width = 0;
  std::int64_t channels_out = 0;
  std::int64_t kernel = 0;  ///< height and width of the convolution's window

  [[gnu::always_inline]] std::int64_t pooled_height() const { return (height - kernel + 1) / 2; }
  [[gnu::always_inline]] std::int64_t pooled_width() const { return (width - kernel + 1) / 2; }
  [[gnu::always_inline]] std::int64_t input_size() const { return channels_in * height * width; }
  [[gnu::always_inline]] std::int64_t pooled_size() const {
    return channels_out * pooled_height() * pooled_width();
  }
};

constexpr std::uint8_t kInactive = 4;
constexpr std::int64_t kLanes = 8;  ///< floats in a vector

/// `count` rounded up to whole vectors.
[[gnu::always_inline]] constexpr std::int64_t padded(std::int64_t count) {
  return (count + kLanes - 1) / kLanes * kLanes;
}

/// Whether this processor has AVX2 and the kernels cover `shape`: window 3 or 5, an even number of
/// output rows, and an output width that is a multiple of 8 (whole vectors).
bool supports(const ConvPoolShape& shape);

/// Computes the images [begin, end) of a batch. `pooled` and `position` are [N, channels_out, h/2,
/// w/2].
void forward(const ConvPoolShape& shape, const float* input, const float* weight, const float* bias,
             std::int64_t begin, std::int64_t end, float* pooled, std::uint8_t* position);

struct BackwardInput {
  const float* grad_pooled = nullptr;
  const std::uint8_t* position = nullptr;
  const float* input = nullptr;
  /// [channels_out, kernel, kernel, padded(channels_in)], with zero padding. Used with grad_input.
  const float* weight_channels_last = nullptr;
};

struct BackwardOutput {
  float* grad_input = nullptr;  ///< overwritten for images [begin, end); null if not needed
  /// Accumulated into: [channels_out, channels_in, kernel, kLanes]; the padding has no meaning.
  float* grad_weight = nullptr;
  float* grad_bias = nullptr;  ///< accumulated into: [channels_out]
};

/// Computes the gradients of the images [begin, end).
void backward(const ConvPoolShape& shape, const BackwardInput& in, std::int64_t begin,
              std::int64_t end, const BackwardOutput& out);

}  // namespace lockstep::kernels
