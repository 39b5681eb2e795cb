// PNG by libpng: any region of an image of any kind, as RGB.
//
// Supports grey, palette, colour and alpha of 1 to 16 bits, interlaced or not. Alpha and
// transparent colours are dropped without blending, and 16 bits are truncated to their high byte.
// Gamma and colour profiles are neither read nor applied. Pixels equal those of PIL's
// convert("RGB"), except for 16-bit grey without alpha: there PIL clips at 255, which makes nearly
// everything white, while this decoder keeps the picture.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <lockstep/formats/image.h>

namespace lockstep::detail {

/// Decodes one image after the other, like JpegDecoder.
///
/// Cost: rows from the top to the region's end are unpacked; an interlaced image is decoded
/// completely, into memory that is kept for the next image. Not thread-safe: use one decoder per
/// thread. Prints nothing.
class PngDecoder {
 public:
  explicit PngDecoder(const ImageDecoderOptions& options = {});
  ~PngDecoder();
  PngDecoder(PngDecoder&&) noexcept;
  PngDecoder& operator=(PngDecoder&&) noexcept;

  /// Reads the header only. `bytes` must live until the last decode(); `name` is the file, for
  /// messages. Throws a DataError if the file is not a PNG, its header is damaged, it exceeds the
  /// options, or it claims more pixels than its bytes can hold. The header lives until the next
  /// open().
  const ImageHeader& open(std::span<const std::byte> bytes, std::string_view name);

  /// Writes `region` of the image to `pixels`, row by row, RGB. May be called again.
  ///
  /// Throws a DataError if the data are damaged (checksums are verified) or truncated, whatever
  /// tolerate_damage says; `pixels` is then unspecified. Damage below the region is not detected. A
  /// file that lacks only its end (the chunk IEND), or holds more data than pixels, is accepted
  /// with a remark, as torchvision and PIL accept it. Throws an InternalError if the region is not
  /// inside of the image, `pixels` has the wrong size, or no image is open.
  void decode(const ImageRegion& region, std::span<std::uint8_t> pixels);

  /// A line that begins with the name and describes an irregularity that the last decode() found,
  /// although every pixel is correct. Empty if it found none. Only decoding a region that includes
  /// the last row can find it. Valid until the next open() or decode().
  std::string_view remark() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Encodes width * height pixels of RGB, row by row, as the content of a PNG file. Throws an
/// InternalError if `pixels` has the wrong size.
std::string encode_png(std::span<const std::uint8_t> pixels, int width, int height);

}  // namespace lockstep::detail
