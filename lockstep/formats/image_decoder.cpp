#include <lockstep/formats/image_decoder.h>

#include <lockstep/core/error.h>

namespace lockstep::detail {

const ImageHeader& ImageDecoder::open(std::span<const std::byte> bytes, std::string_view name) {
  type_.reset();
  const ImageType type = image_type(bytes, name);
  const ImageHeader& header =
      type == ImageType::kJpeg ? jpeg_.open(bytes, name) : png_.open(bytes, name);
  type_ = type;
  return header;
}

int ImageDecoder::eighths(const ImageRegion& region, std::int64_t width,
                          std::int64_t height) const {
  return type_ == ImageType::kJpeg ? jpeg_eighths(region, width, height) : 8;
}

void ImageDecoder::decode(const ImageRegion& region, int eighths, std::span<std::uint8_t> pixels) {
  LOCKSTEP_CHECK(type_.has_value(), "decode() without an image");
  if (type_ == ImageType::kJpeg) {
    jpeg_.decode(region, eighths, pixels);
    return;
  }
  LOCKSTEP_CHECK(eighths == 8, "a PNG at the scale ", eighths, "/8");
  png_.decode(region, pixels);
}

std::string_view ImageDecoder::remark() const {
  return type_ == ImageType::kPng ? png_.remark() : std::string_view();
}

}  // namespace lockstep::detail
