#include <lockstep/data/datasets/packed_images.h>

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/core/options.h>
#include <lockstep/formats/pack.h>

namespace lockstep {
namespace {

// Requests a whole record from the disk at once, rather than page by page. Advice only: failure
// changes nothing.
void read_ahead(std::span<const std::byte> bytes) {
  static const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data());
  const std::uintptr_t first = begin / page * page;
  madvise(reinterpret_cast<void*>(first), begin + bytes.size() - first, MADV_WILLNEED);
}

class PackSource final : public ImageSource {
 public:
  PackSource(const std::filesystem::path& path, const PackedImagesOptions& options)
      : options_(options),
        path_(path.string()),
        file_(path),
        reader_(file_.bytes(), path_),
        seen_((static_cast<std::size_t>(reader_.size()) + 63) / 64) {}

  const formats::PackInfo& info() const { return reader_.info(); }
  std::int64_t size() const override { return reader_.size(); }
  std::int64_t label(std::int64_t index) const override { return reader_.label(index); }
  bool is_file(std::int64_t) const override {
    return info().kind == formats::PackKind::kFiles && !options_.exif_transpose;
  }
  ImageOrigin origin(std::int64_t index) const override { return {.file = path_, .index = index}; }
  std::uint64_t fingerprint() const override { return reader_.fingerprint(); }

  void read(std::int64_t index, ImageReader& reader) const override {
    check_length();
    const formats::PackRecord record = reader_.record(index);
    reading_of_thread().bytes += record.bytes.size();
    if (info().kind == formats::PackKind::kFiles) {
      open_file(index, record, reader);
      if (options_.exif_transpose) reader.transpose_by_exif();
    } else {
      if (is_first_read(index)) read_ahead(record.bytes);
      verify(index, record.bytes);
      reader.show(view_of(record));
    }
  }

  // The shape of all images, as a data set declares it.
  ImageShape shape() const {
    const std::int64_t channels = info().channels == 1 && options_.rgb ? 3 : info().channels;
    if (options_.exif_transpose) return {channels, 0, 0};  // some may be turned
    return {channels, info().height, info().width};
  }

 private:
  ImageView view_of(const formats::PackRecord& record) const {
    const ImageShape shape{info().channels, record.height, record.width};
    ImageView view =
        ImageView::planar(reinterpret_cast<const std::uint8_t*>(record.bytes.data()), shape);
    if (shape.channels == 1 && options_.rgb) {
      view.shape.channels = 3;
      view.channel_stride = 0;  // all three channels share one plane
    }
    return view;
  }

  // The file may be truncated during decoding. Its content is therefore copied without the map: 10
  // KB take a microsecond, and decoding them takes a hundred or more.
  void open_file(std::int64_t index, const formats::PackRecord& record, ImageReader& reader) const {
    const std::span<std::byte> content = reader.memory(record.bytes.size());
    if (!file_.read_at(reader_.offset(index), content)) refuse_length();
    verify(index, content);
    const std::string name = reader_.record_name(index);
    reader.open(content, name, options_.decoding, options_.max_image_pixels);
    // If all records have one shape, the loader does not check the shape of each image.
    if (reader.shape() != ImageShape{3, record.height, record.width}) {
      throw DataError(str(name, ": got an image of ", reader.shape().height, "x",
                          reader.shape().width, ", expected ", record.height, "x", record.width,
                          " by the index"));
    }
  }

  // The reads of the calling thread since it last checked the length of a file.
  struct Reading {
    const PackSource* source = nullptr;
    std::size_t bytes = 0;
  };
  static Reading& reading_of_thread() {
    thread_local Reading reading;
    return reading;
  }

  // Touching a page behind the end of a truncated file would end the process with SIGBUS. The check
  // takes the kernel as long as augmenting a small image, so a thread checks once for many images,
  // and whenever it switches to another pack.
  void check_length() const {
    constexpr std::size_t kBytesBetweenChecks = 64 << 10;
    Reading& reading = reading_of_thread();
    if (reading.source == this && reading.bytes < kBytesBetweenChecks) return;
    reading = {};
    if (!file_.is_whole()) refuse_length();
    reading.source = this;
  }

  [[noreturn]] void refuse_length() const {
    throw DataError(str(path_, ": was cut short while it is in use, expected ",
                        file_.bytes().size(),
                        " bytes; put the file back, or make it again with "
                        "`lockstep data pack`"));
  }

  bool is_first_read(std::int64_t index) const {
    const auto place = static_cast<std::size_t>(index);
    return (seen_[place / 64].load(std::memory_order_relaxed) >> (place % 64) & 1) == 0;
  }

  void verify(std::int64_t index, std::span<const std::byte> bytes) const {
    const bool first = is_first_read(index);
    if (options_.verification == PackVerification::kEveryRead ||
        (first && options_.verification == PackVerification::kFirstRead)) {
      reader_.verify(index, bytes);
    }
    // Marked after the check, so that a failed record is checked again.
    if (!first) return;
    const auto place = static_cast<std::size_t>(index);
    seen_[place / 64].fetch_or(std::uint64_t{1} << (place % 64), std::memory_order_relaxed);
  }

  const PackedImagesOptions options_;
  const std::string path_;
  const MappedFile file_;
  const formats::PackReader reader_;
  mutable std::vector<std::atomic<std::uint64_t>> seen_;  // a bit for each record
};

}  // namespace

ImageDataset load_packed_images(const std::filesystem::path& path,
                                const PackedImagesOptions& options) {
  OptionCheck("load_packed_images")
      .in_range("max_image_pixels", static_cast<double>(options.max_image_pixels), 1,
                static_cast<double>(kMaxImagePixelsLimit));
  auto source = std::make_shared<const PackSource>(path, options);
  const formats::PackInfo& info = source->info();
  if (options.exif_transpose && info.kind == formats::PackKind::kPixels) {
    throw ConfigError(str(path.string(),
                          " holds decoded images without their EXIF orientation; remove "
                          "PackedImagesOptions::exif_transpose, and pack the photographs again "
                          "with `lockstep data pack --exif-transpose`"));
  }
  return ImageDataset(info.name, source->shape(), info.num_classes, source, info.class_names);
}

}  // namespace lockstep
