#include <lockstep/data/image_reader.h>

#include <lockstep/core/file.h>

namespace lockstep {
namespace {

// Far more than the largest image that a decoder accepts.
constexpr std::size_t kLargestFile = std::size_t{1} << 30;

int to_int(std::int64_t pixels) { return static_cast<int>(pixels); }

}  // namespace

void ImageReader::show(const ImageView& image) {
  view_ = image;
  shape_ = image.shape;
  file_ = {};
}

void ImageReader::open(const std::filesystem::path& path, Decoding decoding) {
  read_file(path, kLargestFile, content_);
  open(content_, path.string(), decoding);
}

void ImageReader::open(std::span<const std::byte> file, std::string_view name, Decoding decoding) {
  view_ = {};
  decoding_ = decoding;
  file_ = file;
  if (!decoder_) decoder_.emplace();
  const ImageHeader& header = decoder_->open(file, name);
  shape_ = {3, header.height, header.width};
}

ImageView ImageReader::pixels(const Box& part) {
  if (is_decoded()) return view_.part(part);
  return decode({to_int(part.left), to_int(part.top), to_int(part.width), to_int(part.height)}, 8);
}

ImageView ImageReader::pixels(const Box& part, std::int64_t height, std::int64_t width) {
  if (is_decoded() || decoding_ == Decoding::kExact) return pixels(part);
  const ImageRegion region{to_int(part.left), to_int(part.top), to_int(part.width),
                           to_int(part.height)};
  const int eighths = decoder_->eighths(region, to_int(width), to_int(height));
  return decode(jpeg_region(region, eighths), eighths);
}

ImageView ImageReader::decode(const ImageRegion& region, int eighths) {
  decoded_.resize(rgb_bytes(region));
  decoder_->decode(region, eighths, decoded_);
  return ImageView::interleaved(decoded_.data(), {3, region.height, region.width});
}

}  // namespace lockstep
