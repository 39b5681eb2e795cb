#include <lockstep/data/images/image_reader.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include <lockstep/core/file.h>
#include <lockstep/core/log.h>
#include <lockstep/formats/exif.h>
#include <lockstep/formats/image_decoder.h>

namespace lockstep {
namespace {

// Far more than the file of the largest image that a decoder accepts by default.
constexpr std::size_t kLargestFile = std::size_t{1} << 30;

// Warns only once: a data set may have a million such files, and each epoch reads them again.
void warn_once(std::string_view remark) {
  static std::atomic_flag warned;
  if (warned.test_and_set()) return;
  log_warning(remark,
              "; its pixels are complete and used. Other such files are not named: "
              "`lockstep data check` lists them");
}

// A scale of eighths/8, and the number of its pixels required for ten wanted ones.
struct Reduction {
  int eighths;
  int for_ten;
};

// A triangle that spans too few reduced pixels is not resolved by them. With these gaps bytes
// differ from those of an exact decode by 0.83, 0.82 and 0.72 levels of 255 in the mean, and 99.98,
// 99.95 and 99.94% of them by at most 12: on TrashNet's photographs, shrunk as little as each scale
// allows. The best-fitting weights for these photographs, over seven reduced pixels, are only a
// tenth better. Pillow recommends a gap of 2 (`reducing_gap`), because its weights follow the full
// size less closely.
constexpr std::array kReductions{Reduction{1, 15}, Reduction{2, 13}, Reduction{4, 12}};

std::int64_t with_gap(std::int64_t pixels, int for_ten) { return (pixels * for_ten + 9) / 10; }

}  // namespace

ImageReader::ImageReader(Remarks remarks) : remarks_(remarks) {}
ImageReader::~ImageReader() = default;
ImageReader::ImageReader(ImageReader&&) noexcept = default;
ImageReader& ImageReader::operator=(ImageReader&&) noexcept = default;

void ImageReader::clear() {
  view_ = {};
  file_ = {};
  shape_ = {};
  name_.clear();
}

bool ImageReader::has_image() const {
  return (view_.pixels != nullptr || !file_.empty()) &&
         std::min({shape_.channels, shape_.height, shape_.width}) > 0;
}

std::span<std::byte> ImageReader::memory(std::size_t bytes) {
  content_.resize(bytes);
  return content_;
}

void ImageReader::show(const ImageView& image) {
  view_ = image;
  shape_ = image.shape;
  file_ = {};
}

void ImageReader::open(const std::filesystem::path& path, Decoding decoding,
                       std::int64_t max_image_pixels) {
  read_file(path, kLargestFile, content_);
  open(content_, path.string(), decoding, max_image_pixels);
}

void ImageReader::open(std::span<const std::byte> file, std::string_view name, Decoding decoding,
                       std::int64_t max_image_pixels) {
  clear();
  decoding_ = decoding;
  name_ = name;
  file_ = file;
  if (!decoder_ || decoder_pixels_ != max_image_pixels) {
    decoder_ = std::make_unique<detail::ImageDecoder>(
        ImageDecoderOptions{.max_image_pixels = max_image_pixels});
    decoder_pixels_ = max_image_pixels;
  }
  const ImageHeader& header = decoder_->open(file, name);
  shape_ = {3, header.height, header.width};
}

// EXIF's orientations 5 to 8 swap the axes. The view of the result is that of the file with other
// strides, from which the pixels are copied, because engines expect strides above 0.
void ImageReader::transpose_by_exif() {
  const int orientation = detail::exif_orientation(file_);
  if (orientation == 1) return;
  ImageView from = pixels({0, 0, shape_.height, shape_.width});
  const bool swaps = orientation >= 5;
  const bool flips_columns =
      orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool flips_rows =
      orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  if (flips_columns) {
    from.pixels += (from.shape.width - 1) * from.pixel_stride;
    from.pixel_stride = -from.pixel_stride;
  }
  if (flips_rows) {
    from.pixels += (from.shape.height - 1) * from.row_stride;
    from.row_stride = -from.row_stride;
  }
  if (swaps) {
    std::swap(from.shape.height, from.shape.width);
    std::swap(from.row_stride, from.pixel_stride);
  }
  upright_.resize(static_cast<std::size_t>(from.shape.elements()));
  std::uint8_t* to = upright_.data();
  for (std::int64_t y = 0; y < from.shape.height; ++y) {
    const std::uint8_t* pixel = from.pixels + y * from.row_stride;
    for (std::int64_t x = 0; x < from.shape.width; ++x, pixel += from.pixel_stride) {
      for (std::int64_t c = 0; c < from.shape.channels; ++c) *to++ = pixel[c * from.channel_stride];
    }
  }
  show(ImageView::interleaved(upright_.data(), from.shape));
}

ImageView ImageReader::pixels(const ImageRegion& part) {
  if (is_decoded()) return view_.part(part);
  return decode(part, 8);
}

ReducedView ImageReader::reduced(const ImageRegion& part, std::int64_t height, std::int64_t width) {
  const int eighths = eighths_for(part, height, width);
  if (eighths == 8) return ReducedView::full_size(pixels(part));
  const std::int64_t factor = 8 / eighths;
  return {decode(detail::jpeg_region(part, eighths), eighths),
          factor,
          {part.top % factor, part.left % factor, part.height, part.width}};
}

// The smallest scale that leaves enough pixels.
int ImageReader::eighths_for(const ImageRegion& part, std::int64_t height,
                             std::int64_t width) const {
  if (is_decoded() || decoding_ == Decoding::kExact) return 8;
  for (const auto [eighths, for_ten] : kReductions) {
    const int smallest =
        decoder_->eighths(part, with_gap(width, for_ten), with_gap(height, for_ten));
    if (smallest <= eighths) return eighths;
  }
  return 8;
}

std::string_view ImageReader::remark() const {
  return decoder_ && !is_decoded() ? decoder_->remark() : std::string_view();
}

ImageView ImageReader::decode(const ImageRegion& region, int eighths) {
  decoded_.resize(rgb_bytes(region));
  decoder_->decode(region, eighths, decoded_);
  if (remarks_ == Remarks::kLog && !decoder_->remark().empty()) warn_once(decoder_->remark());
  return ImageView::interleaved(decoded_.data(), {3, region.height, region.width});
}

}  // namespace lockstep
