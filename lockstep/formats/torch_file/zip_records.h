// The records of a zip file, for its reader and its writer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep::torch_file {

inline constexpr std::uint32_t kLocalSignature = 0x04034b50;
inline constexpr std::uint32_t kDirectorySignature = 0x02014b50;
inline constexpr std::uint32_t kEndSignature = 0x06054b50;
inline constexpr std::uint32_t kEnd64Signature = 0x06064b50;
inline constexpr std::uint32_t kLocator64Signature = 0x07064b50;

// Sizes of the records, without names and extra fields.
inline constexpr std::size_t kLocalBytes = 30;
inline constexpr std::size_t kDirectoryBytes = 46;
inline constexpr std::size_t kEndBytes = 22;
inline constexpr std::size_t kEnd64Bytes = 56;
inline constexpr std::size_t kLocator64Bytes = 20;

inline constexpr std::uint16_t kZip64Field = 1;  ///< the extra field of 64-bit sizes and offsets
inline constexpr std::uint64_t kIn64Bits = 0xffffffff;  ///< marks a number in the zip64 field
inline constexpr std::uint64_t kCountIn64Bits = 0xffff;

inline constexpr std::uint16_t kFlagDescriptor = 1U << 3;  ///< sizes follow the content
inline constexpr std::uint16_t kFlagUtf8 = 1U << 11;

/// A record under construction, little-endian.
class ZipRecord {
 public:
  ZipRecord& u16(std::uint64_t value) { return put(value, 2); }
  ZipRecord& u32(std::uint64_t value) { return put(value, 4); }
  ZipRecord& u64(std::uint64_t value) { return put(value, 8); }
  const std::string& text() const { return text_; }

 private:
  ZipRecord& put(std::uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i, value >>= 8) text_ += static_cast<char>(value & 0xff);
    return *this;
  }
  std::string text_;
};

}  // namespace lockstep::torch_file
