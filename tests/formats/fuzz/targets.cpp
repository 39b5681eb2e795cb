#include <tests/formats/fuzz/targets.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/core/philox.h>
#include <lockstep/formats/checkpoint_manifest.h>
#include <lockstep/formats/cifar.h>
#include <lockstep/formats/exif.h>
#include <lockstep/formats/gzip.h>
#include <lockstep/formats/idx.h>
#include <lockstep/formats/image_decoder.h>
#include <lockstep/formats/npy.h>
#include <lockstep/formats/pack.h>
#include <lockstep/formats/pickle.h>
#include <lockstep/formats/safetensors.h>
#include <lockstep/formats/torch_file.h>
#include <lockstep/formats/torch_file/read_pickle.h>
#include <tests/formats/fuzz/harness.h>
#include <tests/formats/pack_bytes.h>
#include <tests/formats/torch_bytes.h>
#include <tests/support/data_bytes.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

// A small limit, so that a header with false sizes costs no time.
constexpr std::int64_t kMaximumImagePixels = (1 << 20) / 3;

ImageRegion region_of(PhiloxStream& random, const ImageHeader& header, int eighths) {
  const auto below = [&](std::int64_t bound) {
    return std::int64_t{random.below(static_cast<std::uint32_t>(bound))};
  };
  const std::int64_t width = detail::jpeg_side(header.width, eighths);
  const std::int64_t height = detail::jpeg_side(header.height, eighths);
  ImageRegion region;
  region.width = 1 + below(width);
  region.height = 1 + below(height);
  region.left = below(width - region.width + 1);
  region.top = below(height - region.height + 1);
  return region;
}

// Decodes the whole image, then a region that depends on the input's size. If the whole can be
// decoded, the region must equal that part of it.
void decode_image(detail::ImageDecoder& decoder, std::span<const std::byte> bytes) {
  const ImageHeader header = decoder.open(bytes, "fuzz");
  PhiloxStream random(bytes.size(), 0, 0);
  const int eighths = header.type == ImageType::kPng ? 8 : 1 << random.below(4);
  const ImageRegion all = {0, 0, detail::jpeg_side(header.height, eighths),
                           detail::jpeg_side(header.width, eighths)};
  // The buffer has exactly the required size, so that a sanitizer detects an access one byte beyond
  // it.
  std::vector<std::uint8_t> image(rgb_bytes(all));
  decoder.decode(all, eighths, image);
  touch(image.data(), static_cast<std::int64_t>(image.size()));

  const ImageRegion region = region_of(random, header, eighths);
  std::vector<std::uint8_t> part(rgb_bytes(region));
  decoder.decode(region, eighths, part);
  const std::int64_t row_bytes = 3 * region.width;
  for (std::int64_t y = 0; y < region.height; ++y) {
    const auto row = image.begin() + 3 * ((region.top + y) * all.width + region.left);
    LOCKSTEP_CHECK(std::equal(row, row + row_bytes, part.begin() + y * row_bytes), "row ", y,
                   " of a region of ", region.width, "x", region.height, " at (", region.left, ", ",
                   region.top, "), ", eighths, "/8, is another than in the whole image");
  }
}

// One decoder decodes all inputs, as in a loader's thread: state left by one input must not harm
// the next.
bool fuzz_image(ImageType type, std::span<const std::byte> bytes) {
  thread_local detail::ImageDecoder strict({.max_image_pixels = kMaximumImagePixels});
  thread_local detail::ImageDecoder tolerant(
      {.max_image_pixels = kMaximumImagePixels, .tolerate_damage = true});
  const auto decodes = [&](detail::ImageDecoder& decoder) {
    return accepts([&] {
      if (image_type(bytes, "fuzz") != type) throw DataError("another target's");
      decode_image(decoder, bytes);
    });
  };
  const int orientation = detail::exif_orientation(bytes);
  LOCKSTEP_CHECK(orientation >= 1 && orientation <= 8, "the orientation is ", orientation);
  const bool accepted = decodes(strict);
  const bool tolerated = decodes(tolerant);
  LOCKSTEP_CHECK(tolerated || !accepted, "tolerance refuses what is right");
  return accepted;
}

// Visits every value of a pickle. The reader bounds their number, with shared values counted each
// time.
void touch_value(const PickleValue& value) {
  const auto touch_all = [](const std::vector<PickleRef>& items) {
    for (const PickleRef& item : items) touch_value(*item);
  };
  if (const auto* list = std::get_if<PickleList>(&value.content)) touch_all(list->items);
  if (const auto* tuple = std::get_if<PickleTuple>(&value.content)) touch_all(tuple->items);
  if (const auto* dict = std::get_if<PickleDict>(&value.content)) {
    for (const auto& [key, item] : dict->items) touch_value(*key), touch_value(*item);
  }
}

// Reads the first and the last element that a tensor's shape and strides reach. Then writes the
// tensors to another file, which must read back the same.
void touch_torch_file(const TorchFile& file) {
  touch_value(*file.content);
  for (const auto& [name, tensor] : file.tensors) {
    touch(tensor.storage);
    if (std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end()) continue;
    std::int64_t last = tensor.offset;
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
      last += (tensor.shape[i] - 1) * tensor.strides[i];
    }
    const std::size_t element = safetensors_element_bytes(tensor.dtype);
    touch(tensor.storage.subspan(static_cast<std::size_t>(tensor.offset) * element, element));
    touch(tensor.storage.subspan(static_cast<std::size_t>(last) * element, element));
  }
  const std::string again = serialize_torch_file(file.tensors);
  const TorchFile reread = parse_torch_file(as_bytes(again), "rewritten");
  LOCKSTEP_CHECK(reread.tensors.size() == file.tensors.size(), "tensors were lost");
  for (std::size_t i = 0; i < file.tensors.size(); ++i) {
    const auto& [name, tensor] = file.tensors[i];
    const auto& [other_name, other] = reread.tensors[i];
    LOCKSTEP_CHECK(name == other_name && tensor.dtype == other.dtype &&
                       tensor.shape == other.shape && tensor.strides == other.strides &&
                       tensor.offset == other.offset &&
                       std::equal(tensor.storage.begin(), tensor.storage.end(),
                                  other.storage.begin(), other.storage.end()),
                   "tensor ", i, " changed");
  }
}

}  // namespace

bool fuzz_checkpoint_manifest(std::span<const std::byte> bytes) {
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return accepts([&] {
    LOCKSTEP_CHECK(formats::serialize_manifest(formats::parse_manifest(text, "fuzz")) == text,
                   "accepted what it does not write");
  });
}

bool fuzz_cifar(std::span<const std::byte> bytes) {
  return accepts([&] {
    const auto count = static_cast<std::int64_t>(bytes.size() / formats::kCifarRecordBytes);
    const formats::CifarRecords records = formats::parse_cifar10(bytes, count, "fuzz");
    touch(records.records, records.count * formats::kCifarRecordBytes);
  });
}

bool fuzz_cifar100(std::span<const std::byte> bytes) {
  return accepts([&] {
    const auto count = static_cast<std::int64_t>(bytes.size() / formats::kCifar100RecordBytes);
    const formats::CifarRecords records = formats::parse_cifar100(bytes, count, "fuzz");
    touch(records.records, records.count * formats::kCifar100RecordBytes);
  });
}

bool fuzz_gzip(std::span<const std::byte> bytes) {
  constexpr std::size_t kMaximumBytes = 1 << 20;
  return accepts([&] {
    const formats::ByteBuffer content = formats::gunzip(bytes, kMaximumBytes, "fuzz");
    LOCKSTEP_CHECK(content.bytes().size() <= kMaximumBytes, "the bound did not hold");
    touch(content.bytes());
  });
}

bool fuzz_idx(std::span<const std::byte> bytes) {
  const bool images = accepts([&] {
    const formats::IdxImages parsed = formats::parse_idx_images(bytes, "fuzz");
    touch(parsed.pixels, parsed.count * parsed.height * parsed.width);
  });
  const bool labels = accepts([&] {
    const formats::IdxLabels parsed = formats::parse_idx_labels(bytes, "fuzz");
    touch(parsed.labels, parsed.count);
  });
  return images || labels;
}

bool fuzz_jpeg(std::span<const std::byte> bytes) { return fuzz_image(ImageType::kJpeg, bytes); }

bool fuzz_npy(std::span<const std::byte> bytes) {
  return accepts([&] { touch(formats::parse_npy(bytes, "fuzz").bytes); });
}

bool fuzz_pack(std::span<const std::byte> bytes) {
  const auto read = [](std::span<const std::byte> pack) {
    const formats::PackReader reader(pack, "fuzz");
    for (std::int64_t i = 0; i < reader.size(); ++i) {
      const formats::PackRecord record = reader.record(i);
      touch(record.bytes);
      LOCKSTEP_CHECK(record.label >= 0 && record.label < reader.info().num_classes, "label");
    }
    for (std::int64_t i = 0; i < reader.size(); ++i) reader.verify(i);
  };
  // Without valid checksums, few inputs would get past them, and none of another length to the
  // index.
  const std::string sealed = with_right_checksums(
      {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, PackLength::kMadeRight);
  // The copy's size is exact, so that a sanitizer detects an access one byte beyond it.
  const std::vector<char> copy(sealed.begin(), sealed.end());
  accepts([&] { read(std::as_bytes(std::span(copy))); });
  return accepts([&] { read(bytes); });
}

bool fuzz_pickle(std::span<const std::byte> bytes) {
  const std::string pickle(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  // The input is also used as the pickle of a file, so that its tensors meet their storages.
  const std::string file = pack(
      {.pickle = pickle, .storages = {{"0", pattern(24)}, {"1", pattern(8)}, {"2", pattern(1)}}});
  accepts([&] { touch_torch_file(parse_torch_file(as_bytes(file), "fuzz")); });
  return accepts([&] {
    const torch_file::Pickle read = torch_file::read_pickle(bytes, "fuzz");
    if (read.bytes != bytes.size()) throw DataError("more than a pickle");
    touch_value(*read.value);
  });
}

bool fuzz_png(std::span<const std::byte> bytes) { return fuzz_image(ImageType::kPng, bytes); }

bool fuzz_safetensors(std::span<const std::byte> bytes) {
  return accepts([&] {
    const Safetensors parsed = parse_safetensors(bytes, "fuzz");
    for (const auto& [name, view] : parsed.tensors) touch(view.bytes);
    // An accepted file can be written again, and reads back the same.
    const std::string again = serialize_safetensors(parsed.tensors, parsed.metadata);
    const Safetensors reread =
        parse_safetensors(std::as_bytes(std::span(again.data(), again.size())), "rewritten");
    LOCKSTEP_CHECK(reread.tensors.size() == parsed.tensors.size(), "tensors were lost");
    LOCKSTEP_CHECK(reread.metadata == parsed.metadata, "metadata was lost");
  });
}

bool fuzz_torch_file(std::span<const std::byte> bytes) {
  // Without valid checksums, few inputs would get past them. The copy's size is exact, so that a
  // sanitizer detects an access one byte beyond it.
  const std::string sealed =
      with_right_crcs({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  const std::vector<char> copy(sealed.begin(), sealed.end());
  accepts([&] { touch_torch_file(parse_torch_file(std::as_bytes(std::span(copy)), "fuzz")); });
  return accepts([&] { touch_torch_file(parse_torch_file(bytes, "fuzz")); });
}

}  // namespace lockstep::testing_support
