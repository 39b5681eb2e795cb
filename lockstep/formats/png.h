// PNG by libpng: any region of an image of any kind, as RGB.
//
// Grey, palette, colour and alpha of 1 to 16 bits, interlaced or not. Alpha and transparent colours
// are dropped without blending, 16 bits are cut to their high byte. Gamma and colour profiles are
// not applied, nor even read. Pixels equal those of PIL's convert("RGB") for all but grey of 16
// bits without alpha: there PIL clips at 255, so that nearly everything becomes white, and we show
// the picture.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <lockstep/formats/image.h>

namespace lockstep {

/// Decodes one image after the other, as JpegDecoder does.
///
/// Cost: rows from the top to the region's end are unpacked; an interlaced image is decoded whole,
/// into memory that is kept for the next. One thread at a time; threads have a decoder each. Prints
/// nothing.
class PngDecoder {
 public:
  explicit PngDecoder(const ImageDecoderOptions& options = {});
  ~PngDecoder();
  PngDecoder(PngDecoder&&) noexcept;
  PngDecoder& operator=(PngDecoder&&) noexcept;

  /// Reads the header only. `bytes` must live until the last decode(); `name` is the file, for
  /// messages. DataError when it is no PNG, its header is damaged, it exceeds the options, or
  /// claims more pixels than its bytes can hold. The header lives until the next open().
  const ImageHeader& open(std::span<const std::byte> bytes, std::string_view name);

  /// Writes `region` of the image to `pixels`, row by row, RGB. May be called again.
  ///
  /// DataError when the data are damaged (checksums are verified) or truncated, whatever the
  /// options say of damage; what `pixels` holds then is of no use. Damage below the region is not
  /// seen. A file that lacks only its end (the chunk IEND), or holds more data than pixels, is
  /// accepted with a remark, as torchvision and PIL accept it. InternalError when the region is not
  /// inside, `pixels` is not of its size, or no image is open.
  void decode(const ImageRegion& region, std::span<std::uint8_t> pixels);

  /// One line, beginning with the name, about what the last decode() found wrong with the file
  /// although every pixel is right; empty when it found nothing. Only a region that reaches the
  /// last row shows it. Valid until the next open() or decode().
  std::string_view remark() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// width * height pixels of RGB, row by row, as the content of a PNG file. InternalError when
/// `pixels` is of another size.
std::string encode_png(std::span<const std::uint8_t> pixels, int width, int height);

}  // namespace lockstep
