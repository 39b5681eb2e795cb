// The shape of an image, and its pixels wherever they lie.
#pragma once

#include <cstdint>

namespace lockstep {

struct ImageShape {
  std::int64_t channels = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;

  std::int64_t elements() const { return channels * height * width; }
  bool operator==(const ImageShape&) const = default;
};

/// A part of an image, in pixels.
struct Box {
  std::int64_t top = 0;
  std::int64_t left = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  bool operator==(const Box&) const = default;
};

/// Bytes of an image, 0 to 255, that somebody else owns: pixel (c, y, x) is at
/// pixels[c * channel_stride + y * row_stride + x * pixel_stride].
struct ImageView {
  const std::uint8_t* pixels = nullptr;
  ImageShape shape{};
  std::int64_t channel_stride = 0;
  std::int64_t row_stride = 0;
  std::int64_t pixel_stride = 0;

  /// The pixels in `box`, where they lie.
  ImageView part(const Box& box) const {
    return {pixels + box.top * row_stride + box.left * pixel_stride,
            {shape.channels, box.height, box.width},
            channel_stride,
            row_stride,
            pixel_stride};
  }

  /// One plane a channel (CHW): MNIST, CIFAR.
  static ImageView planar(const std::uint8_t* pixels, const ImageShape& shape) {
    return {pixels, shape, shape.height * shape.width, shape.width, 1};
  }
  /// The channels of a pixel side by side (HWC): what JPEG and PNG decode to.
  static ImageView interleaved(const std::uint8_t* pixels, const ImageShape& shape) {
    return {pixels, shape, 1, shape.width * shape.channels, shape.channels};
  }
};

/// A part of an image that was decoded at 1/`factor` of its size: a pixel of `view` is the mean of
/// `factor` x `factor` pixels. Such a grid seldom begins and ends where the part does, so that
/// `view` may show a little more.
struct ReducedView {
  ImageView view{};
  std::int64_t factor = 1;
  /// The wanted part in pixels of the full size, counted from the first that `view` covers. It
  /// touches the first and the last row and column of `view`.
  Box part{};

  /// An image at full size, all of which is wanted.
  static ReducedView full_size(const ImageView& view) {
    return {view, 1, {0, 0, view.shape.height, view.shape.width}};
  }
};

}  // namespace lockstep
