// JPEG by libjpeg-turbo: any region of an image, at full size or reduced by eighths, as RGB.
//
// Pixels at full size equal PIL's and torchvision's bit for bit, because the decoder uses the
// accurate integer transform and smooth upsampling of chroma. CMYK and YCCK are converted as PIL
// does (Adobe's inverted values). Arithmetic coding is supported; lossless and 12-bit JPEG, and
// images of two channels, are not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include <lockstep/formats/image.h>

namespace lockstep::detail {

/// Decodes one image after the other. No state of one image affects the next, and apart from row
/// buffers no memory is kept between them.
///
///   JpegDecoder decoder;
///   const ImageHeader& header = decoder.open(file.bytes(), path);
///   const ImageRegion crop = choose(header.width, header.height);
///   const int eighths = jpeg_eighths(crop, 224, 224);
///   const ImageRegion region = jpeg_region(crop, eighths);
///   pixels.resize(rgb_bytes(region));
///   decoder.decode(region, eighths, pixels);
///
/// Cost: entropy decoding is sequential, so all rows from the top to the region's end are read, but
/// only the blocks of the region are transformed. Progressive images are read completely first. Not
/// thread-safe: use one decoder per thread. Prints nothing.
class JpegDecoder {
 public:
  explicit JpegDecoder(const ImageDecoderOptions& options = {});
  ~JpegDecoder();
  JpegDecoder(JpegDecoder&&) noexcept;
  JpegDecoder& operator=(JpegDecoder&&) noexcept;

  /// Reads the header only. `bytes` must live until the last decode(); `name` is the file, for
  /// messages. Throws a DataError if the file is not a JPEG, is of an unsupported kind, exceeds the
  /// options, or claims more pixels than its bytes can hold. The header lives until the next
  /// open().
  const ImageHeader& open(std::span<const std::byte> bytes, std::string_view name);

  /// Writes `region` of the image reduced to eighths/8 (1 to 8; a side of n pixels becomes
  /// jpeg_side(n, eighths)) to `pixels`, row by row, RGB. The result is bit-identical to that
  /// region of the whole image at that scale. May be called again for another region or scale.
  ///
  /// Throws a DataError if the data are damaged or truncated; `pixels` is then unspecified. Damage
  /// below the region is not detected, because its rows are not read. A progressive image of more
  /// than 100 scans is rejected as an attack. Throws an InternalError if the region is not inside
  /// of the image, `pixels` has the wrong size, or no image is open.
  void decode(const ImageRegion& region, int eighths, std::span<std::uint8_t> pixels);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The length of a side of `pixels` pixels at the scale eighths/8, rounded up.
std::int64_t jpeg_side(std::int64_t pixels, int eighths);

/// The smallest of the scales 1/8, 2/8, 4/8 and 8/8 at which `region` (of the image at full size)
/// has at least `width` and `height` pixels; 8 if it has fewer at full size. The scales in between
/// are not offered: libjpeg-turbo has no SIMD code for them, so they save little or nothing.
///
/// A reduced pixel is approximately the mean of the pixels it replaces: on photographs of 150x150
/// (TrashNet) it differs from the mean of the full decode by 0.42 of 255 on average at 4/8, 0.40 at
/// 2/8 and 0.23 at 1/8. Resizing a reduced image is therefore not bit-equal to torchvision, which
/// resizes the full decode. The error depends on how many reduced pixels remain, see
/// ImageReader::reduced().
int jpeg_eighths(const ImageRegion& region, std::int64_t width, std::int64_t height);

/// The smallest region at the scale eighths/8 that covers `region` at full size. Pixel i at that
/// scale covers pixels [i * 8/eighths, (i + 1) * 8/eighths) at full size. `region` rarely begins at
/// the edge of a reduced pixel: it begins (region.left * eighths % 8) / 8 of a pixel after that
/// edge.
ImageRegion jpeg_region(const ImageRegion& region, int eighths);

}  // namespace lockstep::detail
