// Decodes an image file that may be a JPEG or a PNG.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include <lockstep/formats/image.h>
#include <lockstep/formats/jpeg.h>
#include <lockstep/formats/png.h>

namespace lockstep::detail {

/// A JpegDecoder and a PngDecoder behind one interface. Their headers describe use, cost,
/// thread-safety and errors (jpeg.h has an example).
class ImageDecoder {
 public:
  explicit ImageDecoder(const ImageDecoderOptions& options = {}) : jpeg_(options), png_(options) {}

  /// Determines the type from the first bytes and reads the header.
  const ImageHeader& open(std::span<const std::byte> bytes, std::string_view name);

  /// jpeg_eighths() of the open image; 8 for PNG, which has no scales.
  int eighths(const ImageRegion& region, std::int64_t width, std::int64_t height) const;

  /// Decodes `region` at the scale eighths/8. Throws an InternalError if the scale of a PNG is not
  /// 8.
  void decode(const ImageRegion& region, int eighths, std::span<std::uint8_t> pixels);

  /// PngDecoder::remark() of the open image; empty for JPEG.
  std::string_view remark() const;

 private:
  JpegDecoder jpeg_;
  PngDecoder png_;
  std::optional<ImageType> type_;  // type of the open image
};

}  // namespace lockstep::detail
