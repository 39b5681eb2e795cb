#include <lockstep/formats/gzip.h>

#include <libdeflate.h>

#include <cstdlib>
#include <new>

#include <lockstep/core/error.h>

namespace lockstep::formats {
namespace {

constexpr std::size_t kHeaderBytes = 10;
constexpr std::size_t kTrailerBytes = 8;
// Deflate's densest code takes 2 bits for a match of 258 bytes.
constexpr std::size_t kMaximumExpansion = 1032;

std::uint32_t little_endian_32(std::span<const std::byte, 4> bytes) {
  std::uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = value << 8 | std::to_integer<std::uint32_t>(bytes[i]);
  return value;
}

struct FreeDecompressor {
  void operator()(libdeflate_decompressor* decompressor) const {
    libdeflate_free_decompressor(decompressor);
  }
};

}  // namespace

// Large pages are not used: they unpack MNIST 15 ms faster if the kernel has some free, but 60 ms
// slower if it must first make room for them.
ByteBuffer::ByteBuffer(std::size_t size)
    : data_(static_cast<std::byte*>(std::malloc(size == 0 ? 1 : size))), size_(size) {
  if (!data_) throw std::bad_alloc();
}

void ByteBuffer::Free::operator()(std::byte* data) const { std::free(data); }

bool is_gzip(std::span<const std::byte> bytes) {
  return bytes.size() >= 2 && bytes[0] == std::byte{0x1f} && bytes[1] == std::byte{0x8b};
}

std::uint32_t gzip_stated_bytes(std::span<const std::byte> compressed, std::string_view name) {
  if (!is_gzip(compressed)) {
    throw DataError(str(name, ": not a gzip file (it does not begin with 1f 8b)"));
  }
  if (compressed.size() < kHeaderBytes + kTrailerBytes) {
    throw DataError(str(name, ": truncated gzip file of ", compressed.size(), " bytes"));
  }
  return little_endian_32(compressed.last<4>());
}

ByteBuffer gunzip(std::span<const std::byte> compressed, std::size_t maximum_bytes,
                  std::string_view name) {
  const std::size_t claimed = gzip_stated_bytes(compressed, name);
  if (claimed > maximum_bytes) {
    throw DataError(str(name, ": would unpack to ", claimed, " bytes, at most ", maximum_bytes,
                        " are expected"));
  }
  if (claimed / kMaximumExpansion > compressed.size()) {
    throw DataError(str(name, ": damaged or truncated gzip file (claims ", claimed,
                        " bytes, which ", compressed.size(), " compressed bytes cannot hold)"));
  }

  const std::unique_ptr<libdeflate_decompressor, FreeDecompressor> decompressor(
      libdeflate_alloc_decompressor());
  if (!decompressor) throw std::bad_alloc();
  ByteBuffer content(claimed);
  std::size_t used = 0;
  std::size_t produced = 0;
  const libdeflate_result result =
      libdeflate_gzip_decompress_ex(decompressor.get(), compressed.data(), compressed.size(),
                                    content.bytes().data(), claimed, &used, &produced);
  if (result != LIBDEFLATE_SUCCESS) {
    throw DataError(
        str(name, ": damaged or truncated gzip file (its checksum or stream is wrong)"));
  }
  if (used != compressed.size()) {
    throw DataError(
        str(name, ": ", compressed.size() - used, " bytes follow the end of the gzip data"));
  }
  LOCKSTEP_CHECK(produced == claimed, name, ": ", produced, " of ", claimed, " bytes");
  return content;
}

}  // namespace lockstep::formats
