#include <lockstep/report/canvas.h>

#include <lockstep/core/error.h>
#include <lockstep/formats/png.h>
#include <lockstep/report/bitmap_font.h>

namespace lockstep::report {

Canvas::Canvas(std::int64_t height, std::int64_t width, Color background)
    : picture_(height, width) {
  fill({0, 0}, height, width, background);
}

Color Canvas::at(PixelPosition position) const {
  const std::uint8_t* pixel = picture_.pixel(position.x, position.y);
  return {pixel[0], pixel[1], pixel[2]};
}

void Canvas::fill(PixelPosition corner, std::int64_t height, std::int64_t width, Color color) {
  const auto [x, y] = corner;
  LOCKSTEP_CHECK(x >= 0 && y >= 0 && height >= 0 && width >= 0 && y + height <= picture_.height &&
                     x + width <= picture_.width,
                 height, "x", width, " pixels at (", x, ", ", y, ") on a canvas of ",
                 picture_.height, "x", picture_.width);
  for (std::int64_t row = y; row < y + height; ++row) {
    std::uint8_t* pixel = picture_.pixel(x, row);
    for (std::int64_t i = 0; i < width; ++i, pixel += 3) {
      pixel[0] = color.red;
      pixel[1] = color.green;
      pixel[2] = color.blue;
    }
  }
}

void Canvas::draw(PixelPosition corner, const Picture& picture, std::int64_t scale) {
  for (std::int64_t y = 0; y < picture.height; ++y) {
    for (std::int64_t x = 0; x < picture.width; ++x) {
      const std::uint8_t* pixel = picture.pixel(x, y);
      fill({corner.x + x * scale, corner.y + y * scale}, scale, scale,
           {pixel[0], pixel[1], pixel[2]});
    }
  }
}

void Canvas::write(PixelPosition corner, std::string_view text, Color color, std::int64_t scale) {
  for (const Glyph& glyph : glyphs_of(text)) {
    for (int y = 0; y < kGlyphHeight; ++y) {
      for (int x = 0; x < kGlyphWidth; ++x) {
        if ((glyph[y] >> (kGlyphWidth - 1 - x) & 1) == 0) continue;
        fill({corner.x + x * scale, corner.y + y * scale}, scale, scale, color);
      }
    }
    corner.x += kGlyphAdvance * scale;
  }
}

std::string Canvas::png() const {
  return detail::encode_png(picture_.rgb, static_cast<int>(picture_.width),
                            static_cast<int>(picture_.height));
}

}  // namespace lockstep::report
