// How a data set hands an image over, and how an engine takes the pixels that it wants of it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <lockstep/data/images/image.h>
#include <lockstep/formats/image_decoder.h>

namespace lockstep {

/// One image at a time, with memory that is reused from one to the next; for one thread at a time.
/// A source calls show() or open(); then an engine asks for the shape, chooses, and takes a part.
/// Only that part of a file is decoded.
class ImageReader {
 public:
  /// Whether a JPEG may be decoded at a reduced size where a Resize makes much less of it, see
  /// reduced().
  enum class Decoding { kExact, kScaled };
  /// What becomes of remark(): a warning, for the first one in a process, or nothing.
  enum class Remarks { kLog, kKeep };

  explicit ImageReader(Remarks remarks = Remarks::kLog) : remarks_(remarks) {}

  /// Pixels that outlive their use here.
  void show(const ImageView& image);

  /// Reads a JPEG or PNG file and its header; the image has three channels, whatever the file has.
  /// DataError, naming the file, when it cannot be read, is damaged as far as the header tells, or
  /// has more than `max_image_pixels` pixels.
  void open(const std::filesystem::path& path, Decoding decoding = Decoding::kExact,
            std::int64_t max_image_pixels = kMaxImagePixels);
  /// Opens the content of such a file, which outlives its use here; `name` is for messages.
  void open(std::span<const std::byte> file, std::string_view name,
            Decoding decoding = Decoding::kExact, std::int64_t max_image_pixels = kMaxImagePixels);

  /// Forgets the image, but not the memory that it was decoded in.
  void clear() {
    view_ = {};
    file_ = {};
    shape_ = {};
  }
  /// Whether there are pixels, shown or in an open file.
  bool has_image() const {
    return (view_.pixels != nullptr || !file_.empty()) &&
           std::min({shape_.channels, shape_.height, shape_.width}) > 0;
  }
  /// Memory of this reader for a file's content, to be filled and given to open().
  std::span<std::byte> memory(std::size_t bytes) {
    content_.resize(bytes);
    return content_;
  }
  const ImageShape& shape() const { return shape_; }
  bool is_decoded() const { return view_.pixels != nullptr; }
  /// The open file's content, valid as pixels() are; empty where pixels were shown.
  std::span<const std::byte> file() const { return file_; }

  /// The pixels in `part`, exactly, valid until the next call of anything here. DataError, naming
  /// the file, when it is damaged.
  ImageView pixels(const Box& part);

  /// The pixels in `part`, to be resized to `height` x `width` by a Resampler. With
  /// Decoding::kScaled a JPEG is decoded at a half, a quarter or an eighth of its size where that
  /// leaves at least 1.2, 1.3 or 1.5 times `height` and `width`: that is faster than to shrink it
  /// afterwards, and the result hardly differs. On photographs as sharp as they can be (TrashNet,
  /// 150x150, shrunk as little as a reduction allows) bytes differ from those of Decoding::kExact
  /// by at most 0.9 of 255 in the mean, and 99.9% of them by at most 12. Chroma that is sampled
  /// more coarsely one way than the other (4:2:2, 4:1:1; rare) is less exact: libjpeg repeats it.
  ReducedView reduced(const Box& part, std::int64_t height, std::int64_t width);

  /// What pixels() found odd about the open file although its pixels are right, as
  /// ImageDecoder::remark(); empty where pixels were shown.
  std::string_view remark() const;

 private:
  int eighths_for(const Box& part, std::int64_t height, std::int64_t width) const;
  ImageView decode(const ImageRegion& region, int eighths);

  ImageShape shape_;
  ImageView view_;  // no pixels: a file is open
  std::span<const std::byte> file_;
  std::vector<std::byte> content_;  // of a file that was read here
  std::vector<std::uint8_t> decoded_;
  std::optional<ImageDecoder> decoder_;
  std::int64_t decoder_pixels_ = 0;  // the decoder's max_image_pixels
  Decoding decoding_ = Decoding::kExact;
  Remarks remarks_;
};

}  // namespace lockstep
