#include <lockstep/data/datasets/cached_images.h>

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/data/augment/resample.h>

namespace lockstep {
namespace {

constexpr std::int64_t kCacheAlignment = 64;  // bytes: images do not share a cache line
constexpr std::int64_t kLargestSide = 65'535;

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kCacheAlignment - 1) / kCacheAlignment * kCacheAlignment;
}

// Address space that forked processes share. Pages that were never written take no memory.
class SharedPages {
 public:
  explicit SharedPages(std::int64_t bytes) : bytes_(static_cast<std::size_t>(bytes)) {
    data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data_ == MAP_FAILED) {
      throw Error(str("cache_images: cannot map ", bytes, " bytes: ", errno_text(errno),
                      "; give a smaller cache"));
    }
  }
  ~SharedPages() { munmap(data_, bytes_); }
  SharedPages(const SharedPages&) = delete;
  SharedPages& operator=(const SharedPages&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  std::size_t bytes_;
  void* data_;
};

// The shared state of an image. `place` is written last, so that a process that sees kStored or
// more also sees the pixels and their shape.
struct CachedImage {
  static constexpr std::int64_t kEmpty = 0;
  static constexpr std::int64_t kTaken = 1;   // a process is storing it, or it will not be stored
  static constexpr std::int64_t kStored = 2;  // added to the offset of its pixels

  std::atomic<std::int64_t> place;
  std::int32_t channels;
  std::int32_t height;
  std::int32_t width;
};
static_assert(std::atomic<std::int64_t>::is_always_lock_free, "processes share these numbers");

// Copies pixels with any strides to `to`, one plane per channel.
void copy_planar(const ImageView& image, std::uint8_t* to) {
  const auto [channels, height, width] = image.shape;
  for (std::int64_t c = 0; c < channels; ++c) {
    for (std::int64_t y = 0; y < height; ++y, to += width) {
      const std::uint8_t* row = image.pixels + c * image.channel_stride + y * image.row_stride;
      if (image.pixel_stride == 1) {
        std::memcpy(to, row, static_cast<std::size_t>(width));
        continue;
      }
      for (std::int64_t x = 0; x < width; ++x) to[x] = row[x * image.pixel_stride];
    }
  }
}

// The memory holds a counter of the bytes in use, the table, and the pixels. Zeroed pages are an
// empty cache.
class CachedSource final : public ImageSource {
 public:
  CachedSource(ImageDataset dataset, const CacheImagesOptions& options)
      : dataset_(std::move(dataset)),
        size_(options.size),
        max_bytes_(options.max_bytes),
        table_bytes_(aligned(dataset_.size() * static_cast<std::int64_t>(sizeof(CachedImage)))),
        pages_(kCacheAlignment + table_bytes_ + aligned(max_bytes_)) {}

  std::int64_t size() const override { return dataset_.size(); }
  std::int64_t label(std::int64_t index) const override { return dataset_.label(index); }
  ImageOrigin origin(std::int64_t index) const override { return dataset_.origin(index); }

  void read(std::int64_t index, ImageReader& reader) const override {
    CachedImage& image = table()[index];
    const std::int64_t place = image.place.load(std::memory_order_acquire);
    if (place >= CachedImage::kStored) return reader.show(pixels_of(image, place));
    dataset_.read(index, reader);
    if (place == CachedImage::kTaken) return;
    const auto [channels, height, width] = reader.shape();
    const ImageShape shape = size_ ? ImageShape{channels, size_->height, size_->width}
                                   : ImageShape{channels, height, width};
    if (!has_room(shape)) return;
    try {
      const ImageView made = make(reader, shape);
      if (const auto stored = store(image, made)) reader.show(pixels_of(image, *stored));
    } catch (const DataError&) {
      // The file is damaged, but perhaps not in the part that the caller needs.
      leave_out(image);
      dataset_.read(index, reader);
    }
  }

  void prefetch(std::int64_t index) const override {
    constexpr std::int64_t kMost = 4096;  // beyond this, the processor detects a stream
    const CachedImage& image = table()[index];
    const std::int64_t place = image.place.load(std::memory_order_acquire);
    if (place < CachedImage::kStored) return dataset_.prefetch(index);
    const ImageView view = pixels_of(image, place);
    const std::int64_t bytes = std::min(view.shape.elements(), kMost);
    for (std::int64_t i = 0; i < bytes; i += kCacheAlignment) __builtin_prefetch(view.pixels + i);
  }

 private:
  std::atomic<std::int64_t>& used() const {
    return *reinterpret_cast<std::atomic<std::int64_t>*>(pages_.data());
  }
  CachedImage* table() const {
    return reinterpret_cast<CachedImage*>(pages_.data() + kCacheAlignment);
  }
  std::uint8_t* pixels_at(std::int64_t offset) const {
    return reinterpret_cast<std::uint8_t*>(pages_.data() + kCacheAlignment + table_bytes_ + offset);
  }
  ImageView pixels_of(const CachedImage& image, std::int64_t place) const {
    return ImageView::planar(pixels_at(place - CachedImage::kStored),
                             {image.channels, image.height, image.width});
  }

  bool has_room(const ImageShape& shape) const {
    return used().load(std::memory_order_relaxed) + aligned(shape.elements()) <= max_bytes_;
  }

  // The pixels to store, valid until this thread's next call.
  static ImageView make(ImageReader& reader, const ImageShape& shape) {
    const ImageRegion whole{0, 0, reader.shape().height, reader.shape().width};
    if (shape.height == whole.height && shape.width == whole.width) return reader.pixels(whole);
    thread_local data::Resampler resampler;
    return resampler.resize(reader.reduced(whole, shape.height, shape.width), shape.height,
                            shape.width);
  }

  // Marks the image: from now on it is read from the data set.
  static void leave_out(CachedImage& image) {
    std::int64_t empty = CachedImage::kEmpty;
    image.place.compare_exchange_strong(empty, CachedImage::kTaken);
  }

  // Reserves bytes for the caller and returns their offset, or nothing if there is no room. The
  // counter never falls: bytes returned by one image could lie below those of another.
  std::optional<std::int64_t> take_room(std::int64_t bytes) const {
    std::int64_t offset = used().load(std::memory_order_relaxed);
    do {
      if (offset + bytes > max_bytes_) return std::nullopt;
    } while (!used().compare_exchange_weak(offset, offset + bytes, std::memory_order_relaxed));
    return offset;
  }

  // The position of the pixels, or nothing if another thread or process was faster, or took the
  // last room.
  std::optional<std::int64_t> store(CachedImage& image, const ImageView& made) const {
    std::int64_t empty = CachedImage::kEmpty;
    if (!image.place.compare_exchange_strong(empty, CachedImage::kTaken)) return std::nullopt;
    const std::int64_t bytes = aligned(made.shape.elements());
    const std::optional<std::int64_t> offset = take_room(bytes);
    if (!offset) return std::nullopt;
    copy_planar(made, pixels_at(*offset));
    image.channels = static_cast<std::int32_t>(made.shape.channels);
    image.height = static_cast<std::int32_t>(made.shape.height);
    image.width = static_cast<std::int32_t>(made.shape.width);
    const std::int64_t place = *offset + CachedImage::kStored;
    image.place.store(place, std::memory_order_release);
    return place;
  }

  const ImageDataset dataset_;
  const std::optional<ImageSize> size_;
  const std::int64_t max_bytes_;
  const std::int64_t table_bytes_;
  const SharedPages pages_;
};

}  // namespace

std::int64_t cached_bytes(std::int64_t channels, std::int64_t height, std::int64_t width) {
  return aligned(channels * height * width);
}

ImageDataset cache_images(const ImageDataset& dataset, const CacheImagesOptions& options) {
  const OptionCheck check("cache_images");
  check.at_least("max_bytes", static_cast<double>(options.max_bytes), 1);
  if (options.size) {
    check.in_range("size.height", options.size->height, 1, kLargestSide);
    check.in_range("size.width", options.size->width, 1, kLargestSide);
  }
  // Images without room keep their own sizes, so shapes may differ even if a size is set.
  const ImageShape& shape = dataset.shape();
  return ImageDataset(dataset.name(), options.size ? ImageShape{shape.channels, 0, 0} : shape,
                      dataset.num_classes(), std::make_shared<const CachedSource>(dataset, options),
                      dataset.class_names());
}

}  // namespace lockstep
