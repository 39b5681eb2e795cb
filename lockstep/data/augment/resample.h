// Resizing by bilinear interpolation with antialiasing, in bytes.
#pragma once

#include <cstdint>
#include <vector>

#include <lockstep/data/augment/byte_rows.h>
#include <lockstep/data/images/image.h>

namespace lockstep {

/// Resizes images, with memory that is reused from one to the next. For one thread at a time.
///
/// The result is that of Pillow's resize(BILINEAR), which torchvision's Resize calls: first the
/// rows become as wide as wanted, rounded to bytes, then the columns as high. Each new pixel is the
/// mean of the old ones under a triangle around its centre, twice as wide as a new pixel when
/// shrinking and as an old one when growing, with weights in fixed point of 22 bits. (Pillow 13
/// begins with the columns where the height shrinks much more than the width; the results then
/// differ by 1 here and there.)
///
/// For an image that was decoded at a reduced size, each new pixel is what the same triangle, over
/// the part's pixels at full size, makes of a curve through the reduced ones: a parabola in each,
/// whose mean is the reduced pixel's value and whose slope and bend are those of its neighbours. So
/// the part begins and ends where it should, though the grid of reduced pixels does not.
/// Source: Colella, Woodward, "The Piecewise Parabolic Method", J. Comput. Phys. 54, 1984.
class Resampler {
 public:
  /// Planar, in this object's memory until its next call.
  ImageView resize(const ReducedView& reduced, std::int64_t height, std::int64_t width);
  ImageView resize(const ImageView& source, std::int64_t height, std::int64_t width) {
    return resize(ReducedView::full_size(source), height, width);
  }

 private:
  // The wanted part of an axis: pixels [first, first + count) of the full size, of which `factor`
  // are one here.
  struct Extent {
    std::int64_t first = 0;
    std::int64_t count = 0;
    std::int64_t factor = 1;
    bool operator==(const Extent&) const = default;
  };
  // Which old pixels of an axis make each new one.
  struct Windows {
    Extent from;
    std::int64_t to = 0;
    std::vector<RowWindow> windows;
    std::vector<std::int32_t> weights;
    std::vector<double> full;    // of the window that is made: over pixels of the full size
    std::vector<double> folded;  // the same, over reduced ones

    void prepare(const Extent& from, std::int64_t to);
  };

  void widen(const ImageView& source, std::int64_t first_row, std::int64_t rows);

  Windows columns_;
  Windows rows_;
  std::vector<std::uint8_t> upright_;  // the source's columns as rows: [x][channel][y]
  std::vector<std::uint8_t> widened_;  // the same, as wide as wanted
  std::vector<std::uint8_t> wide_;     // planar, as wide as wanted
  std::vector<std::uint8_t> resized_;  // planar
};

}  // namespace lockstep
