#include <tests/formats/fuzz/targets.h>

#include <cstdint>

#include <lockstep/core/error.h>
#include <lockstep/formats/cifar.h>
#include <lockstep/formats/gzip.h>
#include <lockstep/formats/idx.h>
#include <lockstep/formats/safetensors.h>

namespace lockstep::testing {
namespace {

// Volatile: the compiler must not drop the reads that a sanitizer shall see.
volatile std::uint8_t sink;

void touch(const std::uint8_t* data, std::int64_t count) {
  std::uint8_t sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum = static_cast<std::uint8_t>(sum + data[i]);
  sink = sum;
}

void touch(std::span<const std::byte> bytes) {
  touch(reinterpret_cast<const std::uint8_t*>(bytes.data()),
        static_cast<std::int64_t>(bytes.size()));
}

template <class Parse>
bool accepts(const Parse& parse) {
  try {
    parse();
    return true;
  } catch (const InternalError&) {
    throw;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

bool fuzz_cifar(std::span<const std::byte> bytes) {
  return accepts([&] {
    const auto count = static_cast<std::int64_t>(bytes.size() / kCifarRecordBytes);
    const CifarRecords records = parse_cifar10(bytes, count, "fuzz");
    touch(records.records, records.count * kCifarRecordBytes);
  });
}

bool fuzz_gzip(std::span<const std::byte> bytes) {
  constexpr std::size_t kMaximumBytes = 1 << 20;
  return accepts([&] {
    const ByteBuffer content = gunzip(bytes, kMaximumBytes, "fuzz");
    LOCKSTEP_CHECK(content.bytes().size() <= kMaximumBytes, "the bound did not hold");
    touch(content.bytes());
  });
}

bool fuzz_idx(std::span<const std::byte> bytes) {
  const bool images = accepts([&] {
    const IdxImages parsed = parse_idx_images(bytes, "fuzz");
    touch(parsed.pixels, parsed.count * parsed.height * parsed.width);
  });
  const bool labels = accepts([&] {
    const IdxLabels parsed = parse_idx_labels(bytes, "fuzz");
    touch(parsed.labels, parsed.count);
  });
  return images || labels;
}

bool fuzz_safetensors(std::span<const std::byte> bytes) {
  return accepts([&] {
    const Safetensors parsed = parse_safetensors(bytes, "fuzz");
    for (const auto& [name, view] : parsed.tensors) touch(view.bytes);
    // What was accepted can be written, and reads back the same.
    const std::string again = serialize_safetensors(parsed.tensors, parsed.metadata);
    const Safetensors reread =
        parse_safetensors(std::as_bytes(std::span(again.data(), again.size())), "rewritten");
    LOCKSTEP_CHECK(reread.tensors.size() == parsed.tensors.size(), "tensors were lost");
    LOCKSTEP_CHECK(reread.metadata == parsed.metadata, "metadata was lost");
  });
}

}  // namespace lockstep::testing
