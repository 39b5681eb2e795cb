// The kernels of conv_pool_relu_kernel.h, compiled for AVX2 and FMA. Vectors are the compiler's
// vector types, eight floats wide: rows of 8 and of 24 pixels fill them exactly, and wider vectors
// were no faster when measured.
//
// This file must not instantiate a template or inline function that other files also use: the
// linker could keep this copy, which only some processors can run.

#include <cstdint>
#include <cstring>
#include <new>

#include <lockstep/models/kernels/conv_pool_relu_kernel.h>

namespace lockstep::kernels {
namespace {

using Float8 = float __attribute__((vector_size(32)));
using Float4 = float __attribute__((vector_size(16)));
using Int8 = std::int32_t __attribute__((vector_size(32)));
using Int4 = std::int32_t __attribute__((vector_size(16)));
using Byte4 = std::uint8_t __attribute__((vector_size(4)));

#define LOCKSTEP_INLINE inline __attribute__((always_inline))

LOCKSTEP_INLINE void load(Float8& value, const float* from) { std::memcpy(&value, from, 32); }
LOCKSTEP_INLINE void store(float* to, const Float8& value) { std::memcpy(to, &value, 32); }

// Two rows of eight outputs -> four pooled values with their positions.
LOCKSTEP_INLINE void pool(const Float8& upper, const Float8& lower, float* pooled,
                          std::uint8_t* position) {
  // Both rows at once: two pixels of the upper row, two of the lower, and again for the right half.
  const Float8 even = __builtin_shufflevector(upper, lower, 0, 2, 8, 10, 4, 6, 12, 14);
  const Float8 odd = __builtin_shufflevector(upper, lower, 1, 3, 9, 11, 5, 7, 13, 15);
  const Int8 right = (odd > even) | (odd != odd);
  const Float8 larger = right ? odd : even;
  const Float4 above = __builtin_shufflevector(larger, larger, 0, 1, 4, 5);
  const Float4 below = __builtin_shufflevector(larger, larger, 2, 3, 6, 7);
  const Int4 right_above = __builtin_shufflevector(right, right, 0, 1, 4, 5);
  const Int4 right_below = __builtin_shufflevector(right, right, 2, 3, 6, 7);
  const Int4 lower_wins = (below > above) | (below != below);
  const Float4 maximum = lower_wins ? below : above;
  const Int4 inactive = maximum <= 0.0F;
  const Int4 column = (lower_wins ? right_below : right_above) & 1;
  const Int4 where = inactive ? Int4{} + kInactive : (column | (lower_wins & 2));
  const Float4 value = inactive ? Float4{} : maximum;
  const Byte4 bytes = __builtin_convertvector(where, Byte4);
  std::memcpy(pooled, &value, 16);
  std::memcpy(position, &bytes, 4);
}

// Two output rows of eight pixels for kChannels output channels, pooled.
template <int kKernel, int kChannels>
LOCKSTEP_INLINE void forward_tile(const ConvPoolShape& shape, const float* input,
                                  const float* weight, const float* bias, float* pooled,
                                  std::uint8_t* position) {
  Float8 upper[kChannels];
  Float8 lower[kChannels];
  for (int c = 0; c < kChannels; ++c) upper[c] = lower[c] = Float8{} + bias[c];
  const std::int64_t weight_stride = shape.channels_in * kKernel * kKernel;
  for (std::int64_t channel = 0; channel < shape.channels_in; ++channel) {
    const float* row = input;
    for (int ky = 0; ky < kKernel; ++ky) {
#pragma GCC unroll 5
      for (int kx = 0; kx < kKernel; ++kx) {
        Float8 upper_pixels;
        Float8 lower_pixels;
        load(upper_pixels, row + kx);
        load(lower_pixels, row + shape.width + kx);
        for (int c = 0; c < kChannels; ++c) {
          const float w = weight[c * weight_stride + kx];
          upper[c] += upper_pixels * w;
          lower[c] += lower_pixels * w;
        }
      }
      row += shape.width;
      weight += kKernel;
    }
    input += shape.height * shape.width;
  }
  const std::int64_t plane = shape.pooled_height() * shape.pooled_width();
  for (int c = 0; c < kChannels; ++c) {
    pool(upper[c], lower[c], pooled + c * plane, position + c * plane);
  }
}

template <int kKernel, int kChannels>
LOCKSTEP_INLINE void forward_channels(const ConvPoolShape& shape, const float* image,
                                      const float* weight, const float* bias, float* pooled,
                                      std::uint8_t* position) {
  for (std::int64_t y = 0; y < shape.pooled_height(); ++y) {
    const float* row = image + 2 * y * shape.width;
    for (std::int64_t x = 0; x < shape.pooled_width(); x += 4) {
      forward_tile<kKernel, kChannels>(shape, row + 2 * x, weight, bias, pooled, position);
      pooled += 4;
      position += 4;
    }
  }
}

template <int kKernel>
void forward_images(const ConvPoolShape& shape, const float* input, const float* weight,
                    const float* bias, std::int64_t begin, std::int64_t end, float* pooled,
                    std::uint8_t* position) {
  // Ten sums hide the latency of an FMA and leave registers for pixels and weights.
  constexpr int kChannels = 5;
  const std::int64_t plane = shape.pooled_height() * shape.pooled_width();
  const std::int64_t filter = shape.channels_in * kKernel * kKernel;
  for (std::int64_t n = begin; n < end; ++n) {
    const float* image = input + n * shape.input_size();
    for (std::int64_t c = 0; c < shape.channels_out;) {
      const std::int64_t offset = n * shape.pooled_size() + c * plane;
      const bool whole = c + kChannels <= shape.channels_out;
      const auto kernel =
          whole ? forward_channels<kKernel, kChannels> : forward_channels<kKernel, 1>;
      kernel(shape, image, weight + c * filter, bias + c, pooled + offset, position + offset);
      c += whole ? kChannels : 1;
    }
  }
}

// An output of the convolution that has a gradient: its value, and the offset of the top left pixel
// of its window within a plane of the input.
struct Active {
  float gradient;
  std::int32_t offset;
};

// Lists the active outputs of one plane; returns their number.
LOCKSTEP_INLINE std::int64_t list_active(const ConvPoolShape& shape, const float* gradient,
                                         const std::uint8_t* position, Active* list) {
  std::int64_t count = 0;
  for (std::int64_t y = 0; y < shape.pooled_height(); ++y) {
    for (std::int64_t x = 0; x < shape.pooled_width(); ++x, ++gradient, ++position) {
      const int where = *position;
      list[count] = {*gradient, static_cast<std::int32_t>((2 * y + (where >> 1)) * shape.width +
                                                          2 * x + (where & 1))};
      count += static_cast<std::int64_t>((where != kInactive) & (*gradient != 0.0F));
    }
  }
  return count;
}

// The gradient of the filters for kChannels input channels. Returns the sum of the list, which is
// free beside the other sums.
template <int kKernel, int kChannels>
LOCKSTEP_INLINE float add_weight_gradient(const ConvPoolShape& shape, const Active* list,
                                          std::int64_t count, const float* image, float* gradient) {
  constexpr int kRows = kKernel * kChannels;
  const std::int64_t plane = shape.height * shape.width;
  Float8 sum[kRows];
  for (int row = 0; row < kRows; ++row) load(sum[row], gradient + row * kLanes);
  float total = 0.0F;
  for (std::int64_t i = 0; i < count; ++i) {
    const float* window = image + list[i].offset;
    for (int row = 0; row < kRows; ++row) {
      Float8 pixels;
      load(pixels, window + (row / kKernel) * plane + (row % kKernel) * shape.width);
      sum[row] += pixels * list[i].gradient;
    }
    total += list[i].gradient;
  }
  for (int row = 0; row < kRows; ++row) store(gradient + row * kLanes, sum[row]);
  return total;
}

// The gradient of the input, channels last. Only in this layout do loads and stores of overlapping
// neighbouring windows coincide exactly, so that the processor forwards them without waiting.
template <int kKernel>
LOCKSTEP_INLINE void add_input_gradient(const ConvPoolShape& shape, const Active* list,
                                        std::int64_t count, const float* weight, float* gradient) {
  const std::int64_t lanes = padded(shape.channels_in);
  for (std::int64_t i = 0; i < count; ++i) {
    const float factor = list[i].gradient;
    float* window = gradient + list[i].offset * lanes;
    const float* row = weight;
    for (int ky = 0; ky < kKernel; ++ky) {
#pragma GCC unroll 5
      for (std::int64_t lane = 0; lane < kKernel * lanes; lane += kLanes) {
        Float8 target;
        Float8 w;
        load(target, window + lane);
        load(w, row + lane);
        store(window + lane, target + w * factor);
      }
      window += shape.width * lanes;
      row += kKernel * lanes;
    }
  }
}

LOCKSTEP_INLINE void channels_first(const ConvPoolShape& shape, const float* from, float* to) {
  const std::int64_t plane = shape.height * shape.width;
  const std::int64_t lanes = padded(shape.channels_in);
  for (std::int64_t channel = 0; channel < shape.channels_in; ++channel) {
    for (std::int64_t pixel = 0; pixel < plane; ++pixel) {
      to[channel * plane + pixel] = from[pixel * lanes + channel];
    }
  }
}

constexpr std::align_val_t kAlignment{64};

struct Scratch {
  float* image;     // a copy with room after the last row: windows are read eight floats wide
  float* gradient;  // channels last
  Active* list;
};

template <int kKernel>
void backward_images(const ConvPoolShape& shape, const BackwardInput& in, std::int64_t begin,
                     std::int64_t end, const BackwardOutput& out, const Scratch& scratch) {
  const std::int64_t plane = shape.height * shape.width;
  const std::int64_t pooled_plane = shape.pooled_height() * shape.pooled_width();
  const std::int64_t size = shape.input_size();
  for (std::int64_t n = begin; n < end; ++n) {
    std::memcpy(scratch.image, in.input + n * size, size * sizeof(float));
    if (out.grad_input) std::memset(scratch.gradient, 0, plane * padded(shape.channels_in) * 4);
    for (std::int64_t c = 0; c < shape.channels_out; ++c) {
      const std::int64_t offset = n * shape.pooled_size() + c * pooled_plane;
      const std::int64_t count =
          list_active(shape, in.grad_pooled + offset, in.position + offset, scratch.list);
      if (count == 0) continue;
      float* filter = out.grad_weight + c * shape.channels_in * kKernel * kLanes;
      std::int64_t channel = 0;
      float total = 0.0F;
      for (; channel + 2 <= shape.channels_in; channel += 2) {
        total = add_weight_gradient<kKernel, 2>(shape, scratch.list, count,
                                                scratch.image + channel * plane,
                                                filter + channel * kKernel * kLanes);
      }
      if (channel < shape.channels_in) {
        total = add_weight_gradient<kKernel, 1>(shape, scratch.list, count,
                                                scratch.image + channel * plane,
                                                filter + channel * kKernel * kLanes);
      }
      out.grad_bias[c] += total;
      if (!out.grad_input) continue;
      add_input_gradient<kKernel>(
          shape, scratch.list, count,
          in.weight_channels_last + c * kKernel * kKernel * padded(shape.channels_in),
          scratch.gradient);
    }
    if (out.grad_input) channels_first(shape, scratch.gradient, out.grad_input + n * size);
  }
}

}  // namespace

bool supports(const ConvPoolShape& shape) {
  const std::int64_t rows = shape.height - shape.kernel + 1;
  const std::int64_t columns = shape.width - shape.kernel + 1;
  return (shape.kernel == 3 || shape.kernel == 5) && rows > 0 && rows % 2 == 0 && columns > 0 &&
         columns % kLanes == 0 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

void forward(const ConvPoolShape& shape, const float* input, const float* weight, const float* bias,
             std::int64_t begin, std::int64_t end, float* pooled, std::uint8_t* position) {
  const auto kernel = shape.kernel == 5 ? forward_images<5> : forward_images<3>;
  kernel(shape, input, weight, bias, begin, end, pooled, position);
}

void backward(const ConvPoolShape& shape, const BackwardInput& in, std::int64_t begin,
              std::int64_t end, const BackwardOutput& out) {
  const std::int64_t plane = shape.height * shape.width;
  // One element more than there are outputs: list_active() writes before it counts.
  const Scratch scratch = {new (kAlignment) float[shape.input_size() + kLanes](),
                           new (kAlignment) float[plane * padded(shape.channels_in)],
                           new Active[shape.pooled_height() * shape.pooled_width() + 1]};
  const auto kernel = shape.kernel == 5 ? backward_images<5> : backward_images<3>;
  kernel(shape, in, begin, end, out, scratch);
  operator delete[](scratch.image, kAlignment);
  operator delete[](scratch.gradient, kAlignment);
  delete[] scratch.list;
}

}  // namespace lockstep::kernels
