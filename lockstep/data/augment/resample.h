// Resizing by bilinear interpolation with antialiasing, in bytes.
#pragma once

#include <cstdint>
#include <vector>

#include <lockstep/data/augment/byte_rows.h>
#include <lockstep/data/images/image.h>

namespace lockstep::data {

/// Resizes images in memory that is reused from one image to the next. Not thread-safe.
///
/// The result is that of Pillow's resize(BILINEAR), which torchvision's Resize calls: first the
/// rows are resized to the output width and rounded to bytes, then the columns to the output
/// height. Each new pixel is the mean of the old pixels under a triangle around its centre. The
/// triangle is twice as wide as a new pixel when shrinking, and twice as wide as an old pixel when
/// growing; its weights are in 22-bit fixed point. (Pillow 13 begins with the columns where the
/// height shrinks much more than the width; the results then differ by 1 in some bytes.)
///
/// For an image that was decoded at a reduced size, the same triangle, measured in pixels of the
/// full size, is applied to a curve through the reduced pixels. The curve is a parabola in each
/// reduced pixel: its mean is the pixel's value, and its slope and curvature follow from the
/// neighbours. The result therefore begins and ends exactly at the edges of the wanted part,
/// although the grid of reduced pixels does not.
/// Source: Colella, Woodward, "The Piecewise Parabolic Method", J. Comput. Phys. 54, 1984.
class Resampler {
 public:
  /// Returns a planar image in this object's memory, valid until the next call.
  ImageView resize(const ReducedView& reduced, std::int64_t height, std::int64_t width);
  ImageView resize(const ImageView& source, std::int64_t height, std::int64_t width) {
    return resize(ReducedView::full_size(source), height, width);
  }

 private:
  // The wanted part of an axis: pixels [first, first + count) of the full size. One pixel of the
  // view stands for `factor` of them.
  struct Extent {
    std::int64_t first = 0;
    std::int64_t count = 0;
    std::int64_t factor = 1;
    bool operator==(const Extent&) const = default;
  };
  // The old pixels along an axis that contribute to each new pixel.
  struct Windows {
    Extent from;
    std::int64_t to = 0;
    std::vector<RowWindow> windows;
    std::vector<std::int32_t> weights;
    std::vector<double> full;    // weights of the current window, over full-size pixels
    std::vector<double> folded;  // equal weights, over reduced pixels

    void prepare(const Extent& from, std::int64_t to);
  };

  void widen(const ImageView& source, std::int64_t first_row, std::int64_t rows);

  Windows columns_;
  Windows rows_;
  std::vector<std::uint8_t> upright_;  // the source, transposed: [x][channel][y]
  std::vector<std::uint8_t> widened_;  // upright_, resized to the output width
  std::vector<std::uint8_t> wide_;     // planar, resized to the output width
  std::vector<std::uint8_t> resized_;  // planar
};

}  // namespace lockstep::data
