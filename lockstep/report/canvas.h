// An image in memory to draw on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::report {

struct Color {
  std::uint8_t red = 0;
  std::uint8_t green = 0;
  std::uint8_t blue = 0;
  bool operator==(const Color&) const = default;
};

/// A picture of RGB pixels, row by row.
struct Picture {
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::vector<std::uint8_t> rgb;

  Picture(std::int64_t height_, std::int64_t width_)
      : height(height_),
        width(width_),
        rgb(static_cast<std::size_t>(height_) * static_cast<std::size_t>(width_) * 3) {}

  std::uint8_t* pixel(std::int64_t x, std::int64_t y) { return rgb.data() + (y * width + x) * 3; }
  const std::uint8_t* pixel(std::int64_t x, std::int64_t y) const {
    return rgb.data() + (y * width + x) * 3;
  }
};

/// The position of a corner, in pixels from the upper left.
struct PixelPosition {
  std::int64_t x = 0;
  std::int64_t y = 0;
  bool operator==(const PixelPosition&) const = default;
};

/// A picture to draw on. Throws InternalError for drawing outside it. Not thread-safe.
class Canvas {
 public:
  Canvas(std::int64_t height, std::int64_t width, Color background);

  const Picture& picture() const { return picture_; }
  Color at(PixelPosition position) const;

  void fill(PixelPosition corner, std::int64_t height, std::int64_t width, Color color);
  /// Draws every pixel of `picture` as a square of `scale` pixels.
  void draw(PixelPosition corner, const Picture& picture, std::int64_t scale = 1);
  /// Writes in the font of bitmap_font.h, enlarged by `scale`.
  void write(PixelPosition corner, std::string_view text, Color color, std::int64_t scale = 1);

  /// The canvas as the content of a PNG file.
  std::string png() const;

 private:
  Picture picture_;
};

}  // namespace lockstep::report
