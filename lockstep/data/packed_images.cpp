#include <lockstep/data/packed_images.h>

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

// One request for all of a record, where a disk has to be asked, rather than one for each page
// that is met. Advice only: failure changes nothing.
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
        file_(path),
        reader_(file_.bytes(), path.string()),
        seen_((static_cast<std::size_t>(reader_.size()) + 63) / 64) {}

  const PackInfo& info() const { return reader_.info(); }
  std::int64_t size() const override { return reader_.size(); }
  std::int64_t label(std::int64_t index) const override { return reader_.label(index); }
  bool is_file(std::int64_t) const override { return info().kind == PackKind::kFiles; }

  void read(std::int64_t index, ImageReader& reader) const override {
    const PackRecord record = reader_.record(index);
    prepare(index, record);
    if (info().kind == PackKind::kFiles) {
      const std::string name = reader_.record_name(index);
      reader.open(record.bytes, name, options_.decoding, options_.max_image_pixels);
      // Who knows the shape of all does not look at that of each.
      if (reader.shape() != ImageShape{3, record.height, record.width}) {
        throw DataError(str(name, ": got an image of ", reader.shape().height, "x",
                            reader.shape().width, ", expected ", record.height, "x", record.width,
                            " by the index"));
      }
    } else {
      reader.show(ImageView::planar(reinterpret_cast<const std::uint8_t*>(record.bytes.data()),
                                    {info().channels, record.height, record.width}));
    }
  }

 private:
  void prepare(std::int64_t index, const PackRecord& record) const {
    const auto place = static_cast<std::size_t>(index);
    const std::uint64_t bit = std::uint64_t{1} << (place % 64);
    std::atomic<std::uint64_t>& seen = seen_[place / 64];
    const bool first = (seen.load(std::memory_order_relaxed) & bit) == 0;
    if (first) read_ahead(record.bytes);
    if (options_.verification == PackVerification::kEveryRead ||
        (first && options_.verification == PackVerification::kFirstRead)) {
      reader_.verify(index);
    }
    // After the check: what failed is looked at again.
    if (first) seen.fetch_or(bit, std::memory_order_relaxed);
  }

  const PackedImagesOptions options_;
  const MappedFile file_;
  const PackReader reader_;
  mutable std::vector<std::atomic<std::uint64_t>> seen_;  // a bit for each record
};

}  // namespace

ImageDataset load_packed_images(const std::filesystem::path& path,
                                const PackedImagesOptions& options) {
  OptionCheck("load_packed_images")
      .in_range("max_image_pixels", static_cast<double>(options.max_image_pixels), 1,
                static_cast<double>(kMaxImagePixelsLimit));
  auto source = std::make_shared<const PackSource>(path, options);
  const PackInfo& info = source->info();
  return ImageDataset(info.name, {info.channels, info.height, info.width}, info.num_classes, source,
                      info.class_names);
}

}  // namespace lockstep
