// Types that the decoders of image files share: the header of a file, the wanted region, and the
// limits.
//
// Decoders return interleaved 8-bit RGB for any file: grey is replicated, alpha is dropped, 16 bits
// are truncated to their high byte. That equals PIL's convert("RGB"), except for PNGs of 16-bit
// grey, which PIL saturates (png.h). EXIF's orientation and colour profiles are ignored, as
// torchvision's ImageFolder ignores them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <lockstep/core/export.h>

namespace lockstep {

enum class ImageType { kJpeg, kPng };

struct LOCKSTEP_API ImageHeader {
  ImageType type = ImageType::kJpeg;
  int width = 0;   ///< pixels
  int height = 0;  ///< pixels
  int channels =
      0;  ///< channels of the file: 1 grey or palette, 2 grey and alpha, 3 colour, 4 RGBA or CMYK
};

/// A part of an image in pixels: columns [left, left + width) of rows [top, top + height).
struct LOCKSTEP_API ImageRegion {
  std::int64_t top = 0;
  std::int64_t left = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  bool operator==(const ImageRegion&) const = default;
};

/// The default limit for the size of an image: PIL's MAX_IMAGE_PIXELS, 256 MiB as RGB.
inline constexpr std::int64_t kMaxImagePixels = 89'478'485;
/// The largest useful limit: neither format's decoder accepts a side longer than 65,535.
inline constexpr std::int64_t kMaxImagePixelsLimit = std::int64_t{65'535} * 65'535;

struct LOCKSTEP_API ImageDecoderOptions {
  /// Images of more pixels are rejected before memory is allocated. A decoder needs at most 12
  /// bytes per pixel, plus a megabyte.
  std::int64_t max_image_pixels = kMaxImagePixels;
  /// Whether to accept a JPEG that libjpeg finds damaged and fills with grey or noise.
  /// torchvision.io and (except for truncation) PIL accept it, but such pixels silently poison
  /// training.
  bool tolerate_damage = false;
};

/// Returns the type according to the first bytes, not the file name. Throws a DataError that begins
/// with `name` if it is neither JPEG nor PNG; the message names other formats that it recognises
/// (GIF, WebP, BMP, TIFF, AVIF, HEIF).
LOCKSTEP_API ImageType image_type(std::span<const std::byte> bytes, std::string_view name);

/// The region of a whole image.
inline ImageRegion whole(const ImageHeader& header) { return {0, 0, header.height, header.width}; }

/// The size of `region` as RGB, in bytes.
inline std::size_t rgb_bytes(const ImageRegion& region) {
  return std::size_t{3} * static_cast<std::size_t>(region.width) *
         static_cast<std::size_t>(region.height);
}

/// Throws an InternalError unless `region` is not empty and lies in an image of width * height
/// pixels, and `pixels` has exactly the size of its RGB.
LOCKSTEP_API void check_region(const ImageRegion& region, std::int64_t width, std::int64_t height,
                               std::span<const std::uint8_t> pixels);

/// Throws a DataError that begins with `name` if the image that `header` describes exceeds
/// `options`, or has more than `maximum_pixels_per_byte` pixels for each of the file's `file_bytes`
/// bytes: such a header is wrong, and no memory should be allocated for it.
LOCKSTEP_API void check_image_size(const ImageHeader& header, const ImageDecoderOptions& options,
                                   std::size_t file_bytes, std::int64_t maximum_pixels_per_byte,
                                   std::string_view name);

}  // namespace lockstep
