#include <lockstep/data/preparation/pack_images.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/data/augment/choices.h>
#include <lockstep/data/augment/resample.h>
#include <lockstep/data/loader/batch_ring.h>
#include <lockstep/data/preparation/check_images.h>
#include <lockstep/formats/pack_writer.h>

namespace lockstep {
namespace {

[[noreturn]] void refuse_pixels(const ImageDataset& dataset) {
  throw ConfigError(str("pack_images: ", dataset.name(),
                        " holds pixels, not files that could be kept as they are"));
}

// One image being packed, with the memory that it is made in.
class PackedSlot {
 public:
  void fill(const ImageDataset& dataset, std::int64_t index, const PackImagesOptions& options) {
    dataset.read(index, reader_);
    const ImageShape& shape = reader_.shape();
    if (options.keep_files) {
      if (reader_.is_decoded()) refuse_pixels(dataset);
      const auto bytes = static_cast<std::int64_t>(reader_.file().size());
      check_size(shape, bytes, dataset, index, reader_.name());
      return set(reader_.file(), dataset.label(index), shape.height, shape.width);
    }
    const ImageSize size = wanted_size(shape, options);
    const ImageShape made{shape.channels, size.height, size.width};
    check_size(made, made.elements(), dataset, index, reader_.name());
    const ImageView image = reader_.pixels({0, 0, shape.height, shape.width});
    set(std::as_bytes(resize(image, size)), dataset.label(index), size.height, size.width);
  }

  const formats::PackRecord& record() const { return record_; }

 private:
  void set(std::span<const std::byte> bytes, std::int64_t label, std::int64_t height,
           std::int64_t width) {
    record_ = {bytes, label, height, width};
  }

  static ImageSize wanted_size(const ImageShape& shape, const PackImagesOptions& options) {
    if (options.resize) return data::resized(*options.resize, shape.height, shape.width);
    return {static_cast<int>(shape.height), static_cast<int>(shape.width)};
  }

  // Returns CHW without gaps.
  std::span<const std::uint8_t> resize(const ImageView& image, const ImageSize& size) {
    if (image.shape.height == size.height && image.shape.width == size.width) return planar(image);
    return planar(resampler_.resize(image, size.height, size.width));
  }

  // `file` is empty if the image is in no file of its own.
  static void check_size(const ImageShape& shape, std::int64_t bytes, const ImageDataset& dataset,
                         std::int64_t index, std::string_view file) {
    if (std::max(shape.height, shape.width) > formats::kMaximumPackSide ||
        bytes > formats::kMaximumPackRecordBytes) {
      const std::string image = str("image ", index, " of ", dataset.name());
      throw DataError(str("pack_images: ", file.empty() ? image : str(file, " (", image, ")"),
                          " is ", shape.height, "x", shape.width, " in ", bytes,
                          " bytes, more than a pack takes (", formats::kMaximumPackSide,
                          " pixels a side, ", formats::kMaximumPackRecordBytes,
                          " bytes); resize it"));
    }
  }

  // Returns the image's own memory if it is planar without gaps; else a copy.
  std::span<const std::uint8_t> planar(const ImageView& image) {
    const auto [channels, height, width] = image.shape;
    const auto elements = static_cast<std::size_t>(image.shape.elements());
    if (image.pixel_stride == 1 && image.row_stride == width &&
        (channels == 1 || image.channel_stride == height * width)) {
      return {image.pixels, elements};
    }
    pixels_.resize(elements);
    std::uint8_t* out = pixels_.data();
    for (std::int64_t c = 0; c < channels; ++c) {
      for (std::int64_t y = 0; y < height; ++y) {
        const std::uint8_t* row = image.pixels + c * image.channel_stride + y * image.row_stride;
        for (std::int64_t x = 0; x < width; ++x) *out++ = row[x * image.pixel_stride];
      }
    }
    return pixels_;
  }

  ImageReader reader_;
  data::Resampler resampler_;
  std::vector<std::uint8_t> pixels_;
  formats::PackRecord record_;
};

void check_options(const PackImagesOptions& options) {
  const OptionCheck check("pack_images");
  check.in_range("threads", options.threads, 0, 1024);
  if (!options.resize) return;
  if (options.keep_files) {
    throw ConfigError("pack_images: files that are kept as they are cannot be resized");
  }
  const ImageSize& size = options.resize->size;
  constexpr auto kMost = static_cast<double>(formats::kMaximumPackSide);
  check.in_range("resize.size.height", size.height, 1, kMost);
  if (!options.resize->shorter_side) check.in_range("resize.size.width", size.width, 1, kMost);
}

PackedSize pack_sound(const ImageDataset& dataset, const std::filesystem::path& path,
                      const std::string& name, const PackImagesOptions& options) {
  formats::PackInfo info;
  info.kind = options.keep_files ? formats::PackKind::kFiles : formats::PackKind::kPixels;
  info.name = name;
  info.channels = dataset.shape().channels;
  info.num_classes = dataset.num_classes();
  info.class_names = dataset.class_names();
  formats::PackWriter writer(path, info, dataset.size());

  std::vector<PackedSlot> slots(static_cast<std::size_t>(2 * options.threads + 1));
  data::BatchRing ring(
      [&](int slot, std::int64_t index) {
        slots[static_cast<std::size_t>(slot)].fill(dataset, index, options);
      },
      {.threads = options.threads, .slots = static_cast<int>(slots.size())});
  ring.start(0, dataset.size());
  std::int64_t done = 0;
  while (const auto slot = ring.next()) {
    writer.add(slots[static_cast<std::size_t>(*slot)].record());
    ++done;
    if (options.progress) options.progress(done);
  }
  writer.finish();
  return {done, writer.bytes(), {}};
}

}  // namespace

PackedSize pack_images(const ImageDataset& dataset, const std::filesystem::path& path,
                       const PackImagesOptions& options) {
  check_options(options);
  // Files are always read as three channels.
  if (options.keep_files && dataset.shape().channels != 3) refuse_pixels(dataset);
  if (options.on_corrupt_image == OnCorruptImage::kStop) {
    return pack_sound(dataset, path, dataset.name(), options);
  }
  // The position of the first record depends on the number of records, so it must be known.
  ImagesCheck check =
      check_images(dataset, {.threads = options.threads, .progress = options.check_progress});
  if (check.corrupt.size() == static_cast<std::size_t>(check.images)) {
    throw DataError(str("none of the ", check.images, " images of ", dataset.name(),
                        " can be read; the first: ", check.corrupt.front().reason));
  }
  PackedSize size = pack_sound(check.corrupt.empty() ? dataset : subset(dataset, check.sound()),
                               path, dataset.name(), options);
  size.skipped = std::move(check.corrupt);
  return size;
}

}  // namespace lockstep
