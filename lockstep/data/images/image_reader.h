// Passes an image from a data set to an engine, which takes only the pixels it needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/core/export.h>
#include <lockstep/data/images/image.h>
#include <lockstep/formats/image.h>

namespace lockstep::detail {
class ImageDecoder;
}

namespace lockstep {

/// Reads one image at a time, in memory that is reused from one image to the next. Not thread-safe.
/// A source calls show() or open(). Then an engine asks for the shape, makes its random choices,
/// and takes a part. If the image is a file, only that part is decoded.
class LOCKSTEP_API ImageReader {
 public:
  /// Whether a JPEG may be decoded at a reduced size if a Resize shrinks it strongly, see
  /// reduced().
  enum class Decoding { kExact, kScaled };
  /// Whether decoding logs a remark(), as a warning once per process, or leaves it to the caller.
  enum class Remarks { kLog, kKeep };

  explicit ImageReader(Remarks remarks = Remarks::kLog);
  ~ImageReader();
  ImageReader(ImageReader&&) noexcept;
  ImageReader& operator=(ImageReader&&) noexcept;

  /// Sets the image to pixels that must stay valid while this reader uses them.
  void show(const ImageView& image);

  /// Reads a JPEG or PNG file and its header. The image has three channels, whatever the file
  /// contains. Throws a DataError that names the file if it cannot be read, its header shows
  /// damage, or it has more than `max_image_pixels` pixels.
  void open(const std::filesystem::path& path, Decoding decoding = Decoding::kExact,
            std::int64_t max_image_pixels = kMaxImagePixels);
  /// Opens the content of such a file. The content must stay valid while this reader uses it;
  /// `name` is used in messages.
  void open(std::span<const std::byte> file, std::string_view name,
            Decoding decoding = Decoding::kExact, std::int64_t max_image_pixels = kMaxImagePixels);

  /// Turns the open file upright as Pillow's ImageOps.exif_transpose() does: if its EXIF
  /// orientation is not 1, the image is decoded as a whole and then shown, so that is_decoded() is
  /// true. Throws a DataError like pixels().
  void transpose_by_exif();

  /// Forgets the image, but keeps the allocated memory.
  void clear();
  /// Whether there is an image: pixels or an open file.
  bool has_image() const;
  /// This reader's buffer for a file's content. The caller fills it and passes it to open().
  std::span<std::byte> memory(std::size_t bytes);
  const ImageShape& shape() const { return shape_; }
  /// Whether the image was set by show(), so that its pixels need no decoding.
  bool is_decoded() const { return view_.pixels != nullptr; }
  /// The name of the file that open() was given last, for messages; empty if there was none since
  /// clear().
  std::string_view name() const { return name_; }
  /// The open file's content, valid as long as pixels() are; empty after show().
  std::span<const std::byte> file() const { return file_; }

  /// The pixels in `part`, decoded exactly, valid until the next call of any function here. Throws
  /// a DataError that names the file if it is damaged.
  ImageView pixels(const ImageRegion& part);

  /// The pixels in `part`, to be resized to `height` x `width` by a Resampler. With
  /// Decoding::kScaled a JPEG is decoded at a half, a quarter or an eighth of its size if the
  /// result is at least 1.2, 1.3 or 1.5 times `height` and `width`. That is faster than shrinking
  /// it afterwards, and the result hardly differs. On very sharp photographs (TrashNet, 150x150,
  /// shrunk as little as a reduction allows) bytes differ from those of Decoding::kExact by at most
  /// 0.9 of 255 in the mean, and 99.9% of them by at most 12. Chroma with different horizontal and
  /// vertical subsampling (4:2:2, 4:1:1; rare) is less exact, because libjpeg repeats it.
  ReducedView reduced(const ImageRegion& part, std::int64_t height, std::int64_t width);

  /// Describes an irregularity that pixels() or reduced() found in the open file although its
  /// pixels are correct, see ImageDecoder::remark(). Empty if there is none, and after show().
  std::string_view remark() const;

 private:
  int eighths_for(const ImageRegion& part, std::int64_t height, std::int64_t width) const;
  ImageView decode(const ImageRegion& region, int eighths);

  ImageShape shape_;
  ImageView view_;  // without pixels: a file is open
  std::span<const std::byte> file_;
  std::string name_;
  std::vector<std::byte> content_;  // content of a file that was read here
  std::vector<std::uint8_t> decoded_;
  std::vector<std::uint8_t> upright_;  // pixels of transpose_by_exif()
  std::unique_ptr<detail::ImageDecoder> decoder_;
  std::int64_t decoder_pixels_ = 0;  // the decoder's max_image_pixels
  Decoding decoding_ = Decoding::kExact;
  Remarks remarks_;
};

}  // namespace lockstep
