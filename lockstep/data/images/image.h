// The shape of an image, and views of its pixels in any memory layout.
#pragma once

#include <cstdint>

#include <lockstep/core/export.h>
#include <lockstep/formats/image.h>

namespace lockstep {

struct LOCKSTEP_API ImageShape {
  std::int64_t channels = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;

  std::int64_t elements() const { return channels * height * width; }
  bool operator==(const ImageShape&) const = default;
};

/// A view of an image's bytes, 0 to 255, without ownership: pixel (c, y, x) is at
/// pixels[c * channel_stride + y * row_stride + x * pixel_stride].
struct LOCKSTEP_API ImageView {
  const std::uint8_t* pixels = nullptr;
  ImageShape shape{};
  std::int64_t channel_stride = 0;
  std::int64_t row_stride = 0;
  std::int64_t pixel_stride = 0;

  /// The pixels in `region`, without a copy.
  ImageView part(const ImageRegion& region) const {
    return {pixels + region.top * row_stride + region.left * pixel_stride,
            {shape.channels, region.height, region.width},
            channel_stride,
            row_stride,
            pixel_stride};
  }

  /// One plane per channel (CHW): MNIST, CIFAR.
  static ImageView planar(const std::uint8_t* pixels, const ImageShape& shape) {
    return {pixels, shape, shape.height * shape.width, shape.width, 1};
  }
  /// The channels of a pixel side by side (HWC): the layout of decoded JPEG and PNG files.
  static ImageView interleaved(const std::uint8_t* pixels, const ImageShape& shape) {
    return {pixels, shape, 1, shape.width * shape.channels, shape.channels};
  }
};

/// A part of an image that was decoded at 1/`factor` of its size: a pixel of `view` is the mean of
/// `factor` x `factor` pixels. The edges of this grid rarely coincide with the edges of the part,
/// so `view` may show a little more.
struct LOCKSTEP_API ReducedView {
  ImageView view{};
  std::int64_t factor = 1;
  /// The wanted part in pixels of the full size, relative to the first pixel that `view` covers. It
  /// touches the first and the last row and column of `view`.
  ImageRegion part{};

  /// A complete image at full size.
  static ReducedView full_size(const ImageView& view) {
    return {view, 1, {0, 0, view.shape.height, view.shape.width}};
  }
};

}  // namespace lockstep
