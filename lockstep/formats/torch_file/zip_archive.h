// The zip container of torch.save: stored entries, read where they lie, and written aligned.
//
// Not libzip: it gives an entry's content as a copy, and neither tells nor lets choose where the
// content lies in the file, while tensors shall be views into a memory map and be aligned in it.
// torch.save compresses nothing, so what is left of zip is its directory.
//
// Format: PKWARE's APPNOTE.TXT 6.3.10, sections 4.3 and 4.5.3 (zip64).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::torch_file {

struct ZipEntry {
  std::string name{};
  std::span<const std::byte> content{};
  std::uint32_t crc = 0;  ///< CRC-32 of the content, as the directory states it; not verified
  /// The content is there as another method than "stored" has packed it.
  bool is_compressed = false;
};

/// Whether `bytes` begins like a zip file.
bool is_zip(std::span<const std::byte> bytes);

/// CRC-32 of zip and gzip.
std::uint32_t crc_32(std::span<const std::byte> bytes);

/// The entries of the archive `bytes`, in the order of its directory; views into `bytes`.
/// CheckpointError, beginning with `name`, unless the archive ends with its directory, is of one
/// part, and has entries that are not encrypted, distinct in their names and in the places that
/// they take, and whose own headers agree with the directory.
std::vector<ZipEntry> read_zip(std::span<const std::byte> bytes, std::string_view name);

/// Writes an archive piece by piece through `write`, which appends to what was written before it.
/// Contents begin at multiples of kZipAlignment, where torch.load(mmap=True) and the reader above
/// find aligned tensors. Directory and offsets are those of zip64 where the archive needs them.
class ZipWriter {
 public:
  explicit ZipWriter(std::function<void(std::string_view)> write) : write_(std::move(write)) {}

  /// `name` is UTF-8 of at most 65,535 bytes; the caller gives each entry its own.
  void add(std::string_view name, std::span<const std::byte> content);
  void add(std::string_view name, std::string_view content);
  /// Writes the directory. Nothing may be added after it.
  void finish();

 private:
  struct Written {
    std::string name{};
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    std::uint32_t crc = 0;
  };

  void write(std::string_view piece);

  std::function<void(std::string_view)> write_;
  std::uint64_t at_ = 0;
  std::vector<Written> entries_;
};

inline constexpr std::uint64_t kZipAlignment = 64;

}  // namespace lockstep::torch_file
