// What the cuda engine's kernel computes for one number of a batch, as a function that compiles for
// CPU and GPU.
//
// For one image, the list of operators is a map from output pixels to source pixels, with padding
// around them and erased areas on top. The CPU computes that map from the random choices, and the
// kernel looks up every pixel in it. A batch therefore costs one read of its bytes and one write of
// its numbers.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define LOCKSTEP_HOST_DEVICE __host__ __device__
#else
#define LOCKSTEP_HOST_DEVICE
#endif

namespace lockstep::data {

inline constexpr int kMostErasures = 4;
inline constexpr int kMostChannels = 4;

/// The Axis of augment/axis.h in 32 bits.
struct GatherAxis {
  std::int32_t origin;
  std::int32_t step;
  std::int32_t low;
  std::int32_t high;
};

struct GatherErasure {
  std::int32_t top;
  std::int32_t left;
  std::int32_t bottom;
  std::int32_t right;
  float value;
  std::int32_t is_byte;
};

/// One image of a batch, as plain bytes that are copied to the GPU.
struct GatherImage {
  std::int64_t index;  ///< index in the data set
  GatherAxis rows;
  GatherAxis columns;
  std::int32_t erasures;
  GatherErasure erased[kMostErasures];
};

/// The values that are the same for all images, given a data set and a list of operators.
struct GatherShape {
  std::int32_t channels;
  std::int32_t source_height;
  std::int32_t source_width;
  std::int32_t height;
  std::int32_t width;
  std::int32_t channels_last;
  float fill;  ///< the padding's value, 0 to 255
  float scale[kMostChannels];
  float bias[kMostChannels];
};

enum class GatherType { kFloat32, kBFloat16, kFloat16 };

/// One batch to make: writes `count` images to `output`. All pointers are device pointers.
struct GatherLaunch {
  GatherShape shape;
  const GatherImage* images = nullptr;
  std::int64_t count = 0;
  const std::uint8_t* source = nullptr;
  void* output = nullptr;
  GatherType type = GatherType::kFloat32;
};
// Rounds after each operation. A GPU would otherwise fuse the two, and its result would differ from
// the CPU's in the last bit.
LOCKSTEP_HOST_DEVICE inline float scaled(float byte, float scale, float bias) {
#if defined(__CUDA_ARCH__)
  return __fadd_rn(__fmul_rn(byte, scale), bias);
#else
  return byte * scale + bias;
#endif
}

/// Channel `c` of pixel (y, x) of one output image. `source` holds the data set's images, CHW.
LOCKSTEP_HOST_DEVICE inline float gathered(const GatherShape& shape, const GatherImage& image,
                                           const std::uint8_t* source, int c, int y, int x) {
  for (int i = image.erasures - 1; i >= 0; --i) {  // the last one lies on top
    const GatherErasure& area = image.erased[i];
    if (y < area.top || y >= area.bottom || x < area.left || x >= area.right) continue;
    return area.is_byte ? scaled(area.value, shape.scale[c], shape.bias[c]) : area.value;
  }
  const int row = image.rows.origin + image.rows.step * y;
  const int column = image.columns.origin + image.columns.step * x;
  float byte = shape.fill;
  if (row >= image.rows.low && row < image.rows.high && column >= image.columns.low &&
      column < image.columns.high) {
    const std::int64_t plane = image.index * shape.channels + c;
    byte = source[(plane * shape.source_height + row) * shape.source_width + column];
  }
  return scaled(byte, shape.scale[c], shape.bias[c]);
}

/// The position in the batch of channel `c` of pixel (y, x) of image `n`.
LOCKSTEP_HOST_DEVICE inline std::int64_t gather_place(const GatherShape& shape, std::int64_t n,
                                                      int c, int y, int x) {
  if (shape.channels_last) {
    return ((n * shape.height + y) * shape.width + x) * shape.channels + c;
  }
  return ((n * shape.channels + c) * shape.height + y) * shape.width + x;
}

}  // namespace lockstep::data
