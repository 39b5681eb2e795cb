#include <lockstep/formats/idx.h>

#include <array>
#include <ios>

#include <lockstep/core/error.h>

namespace lockstep::formats {
namespace {

constexpr std::uint32_t kLabelsMagic = 0x00000801;
constexpr std::uint32_t kImagesMagic = 0x00000803;
constexpr std::uint64_t kMaximumIdxSide = 65536;

std::uint32_t big_endian_32(std::span<const std::byte> bytes, std::size_t offset) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    value = value << 8 | std::to_integer<std::uint32_t>(bytes[offset + i]);
  }
  return value;
}

const char* kind_of(std::uint32_t magic) {
  switch (magic) {
    case kLabelsMagic:
      return "IDX labels";
    case kImagesMagic:
      return "IDX images";
    default:
      return "no IDX file of bytes";
  }
}

// Checks the magic number and the size; returns the dimensions.
template <std::size_t Dimensions>
std::array<std::uint64_t, Dimensions> read_header(std::span<const std::byte> bytes,
                                                  std::uint32_t magic, std::string_view name) {
  constexpr std::size_t header_bytes = 4 + 4 * Dimensions;
  if (bytes.size() < header_bytes) {
    throw DataError(str(name, ": truncated, got ", bytes.size(), " bytes where the header of ",
                        kind_of(magic), " has ", header_bytes));
  }
  const std::uint32_t got = big_endian_32(bytes, 0);
  if (got != magic) {
    throw DataError(str(name, ": expected ", kind_of(magic), " (magic 0x", std::hex, magic,
                        "), got ", kind_of(got), " (0x", got, ")"));
  }
  std::array<std::uint64_t, Dimensions> dimensions{};
  std::uint64_t expected = 1;
  for (std::size_t i = 0; i < Dimensions; ++i) {
    dimensions[i] = big_endian_32(bytes, 4 + 4 * i);
    // With sides of at most 2^16 the product of three dimensions stays below 2^64.
    const bool side = i > 0;
    if (dimensions[i] == 0 || (side && dimensions[i] > kMaximumIdxSide)) {
      throw DataError(str(name, ": dimension ", i, " of the header is ", dimensions[i],
                          ", which cannot be right"));
    }
    expected *= dimensions[i];
  }
  const std::uint64_t got_bytes = bytes.size() - header_bytes;
  if (got_bytes != expected) {
    throw DataError(str(name, ": ", got_bytes < expected ? "truncated" : "oversized", ", got ",
                        got_bytes, " bytes after the header, expected ", expected));
  }
  return dimensions;
}

}  // namespace

IdxImages parse_idx_images(std::span<const std::byte> bytes, std::string_view name) {
  const auto dimensions = read_header<3>(bytes, kImagesMagic, name);
  return {static_cast<std::int64_t>(dimensions[0]), static_cast<std::int64_t>(dimensions[1]),
          static_cast<std::int64_t>(dimensions[2]),
          reinterpret_cast<const std::uint8_t*>(bytes.data() + kIdxImagesHeaderBytes)};
}

IdxLabels parse_idx_labels(std::span<const std::byte> bytes, std::string_view name) {
  const auto dimensions = read_header<1>(bytes, kLabelsMagic, name);
  return {static_cast<std::int64_t>(dimensions[0]),
          reinterpret_cast<const std::uint8_t*>(bytes.data() + kIdxLabelsHeaderBytes)};
}

}  // namespace lockstep::formats
