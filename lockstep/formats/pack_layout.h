// The bytes of a packed image file (pack.h), for its reader, its writer and their tests.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lockstep::formats {

static_assert(std::endian::native == std::endian::little, "a pack is read where it lies");

inline constexpr std::string_view kPackMagic = "LOCKPACK";
inline constexpr std::uint32_t kPackVersion = 1;

struct PackHeader {
  char magic[8];
  std::uint32_t version;
  std::uint32_t kind;
  std::uint64_t file_bytes;
  std::uint64_t records;
  std::uint32_t classes;
  std::uint32_t channels;
  std::uint32_t height;
  std::uint32_t width;
  std::uint64_t names_bytes;
  std::uint64_t
      table_checksum;  ///< checksum of all bytes from the header's end to the first record
  std::uint64_t reserved[7];
  std::uint64_t header_checksum;  ///< checksum of all header bytes before it
};
static_assert(sizeof(PackHeader) == 128);
inline constexpr std::size_t kPackHeaderChecked = offsetof(PackHeader, header_checksum);

struct PackEntry {
  std::uint64_t offset;
  std::uint64_t checksum;
  std::uint32_t bytes;
  std::uint32_t label;
  std::uint32_t height;
  std::uint32_t width;
};
static_assert(sizeof(PackEntry) == 32);

/// Records begin at multiples of a cache line, so that no two records share one.
inline constexpr std::uint64_t kPackRecordAlignment = 64;
/// The data begins at a multiple of a page, so that it can be advised (madvise) and dropped
/// separately from the index.
inline constexpr std::uint64_t kPackDataAlignment = 4096;

constexpr std::uint64_t pack_aligned(std::uint64_t offset, std::uint64_t alignment) {
  return (offset + alignment - 1) / alignment * alignment;
}
constexpr std::uint64_t pack_index_offset(std::uint64_t names_bytes) {
  return pack_aligned(sizeof(PackHeader) + names_bytes, kPackRecordAlignment);
}
constexpr std::uint64_t pack_data_offset(std::uint64_t names_bytes, std::uint64_t records) {
  return pack_aligned(pack_index_offset(names_bytes) + records * sizeof(PackEntry),
                      kPackDataAlignment);
}

}  // namespace lockstep::formats
