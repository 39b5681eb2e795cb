// What the decoders of image files share: what a file holds, which part of it is wanted, how much
// is allowed.
//
// Decoders give interleaved 8-bit RGB whatever the file holds: grey is replicated, alpha is
// dropped, 16 bits are cut to their high byte. That equals PIL's convert("RGB"), except for PNGs of
// 16-bit grey, which PIL saturates (png.h). EXIF's orientation and colour profiles are ignored, as
// torchvision's ImageFolder ignores them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace lockstep {

enum class ImageType { kJpeg, kPng };

struct ImageHeader {
  ImageType type = ImageType::kJpeg;
  int width = 0;     ///< pixels
  int height = 0;    ///< pixels
  int channels = 0;  ///< of the file: 1 grey or palette, 2 grey and alpha, 3 colour, 4 RGBA or CMYK
};

/// Pixels [x, x + width) of rows [y, y + height).
struct ImageRegion {
  int x = 0;
  int y = 0;
  int width = 0;
  int height = 0;
};

/// The largest image that is read unless an option says otherwise: PIL's MAX_IMAGE_PIXELS, 256 MiB
/// as RGB.
inline constexpr std::int64_t kMaxImagePixels = 89'478'485;
/// The largest limit that makes sense: neither format's decoder takes a longer side than 65,535.
inline constexpr std::int64_t kMaxImagePixelsLimit = std::int64_t{65'535} * 65'535;

struct ImageDecoderOptions {
  /// Images of more pixels than this are refused before memory is asked for. While it decodes, a
  /// decoder holds at most 12 bytes for each, plus a megabyte.
  std::int64_t max_image_pixels = kMaxImagePixels;
  /// Whether to accept a JPEG whose data libjpeg finds damaged and patches up with grey or noise,
  /// as torchvision.io and (for all but truncation) PIL do: such pixels poison training unseen.
  bool tolerate_damage = false;
};

/// Told by the first bytes, not by the name. DataError, beginning with `name`, when it is neither;
/// the message names other formats that the bytes are known by (GIF, WebP, BMP, TIFF, AVIF, HEIF).
ImageType image_type(std::span<const std::byte> bytes, std::string_view name);

/// The whole of an image.
inline ImageRegion whole(const ImageHeader& header) { return {0, 0, header.width, header.height}; }

/// Bytes of `region` as RGB.
inline std::size_t rgb_bytes(const ImageRegion& region) {
  return std::size_t{3} * static_cast<std::size_t>(region.width) *
         static_cast<std::size_t>(region.height);
}

/// InternalError unless `region` is not empty and lies in width * height, and `pixels` is exactly
/// its RGB.
void check_region(const ImageRegion& region, int width, int height,
                  std::span<const std::uint8_t> pixels);

/// DataError, beginning with `name`, when an image of `header` exceeds `options`, or when it has
/// more than `maximum_pixels_per_byte` pixels for each of the `file_bytes` that it is read from:
/// then the header lies, and no memory should be asked for on its word.
void check_image_size(const ImageHeader& header, const ImageDecoderOptions& options,
                      std::size_t file_bytes, std::int64_t maximum_pixels_per_byte,
                      std::string_view name);

}  // namespace lockstep
