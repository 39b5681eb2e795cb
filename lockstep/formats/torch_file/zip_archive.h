// Reads and writes the zip container of torch.save, whose entries are stored without compression.
// They are read in place and written aligned.
//
// libzip is not used: it returns an entry's content as a copy, and can neither report nor choose
// the position of the content in the file. Tensors, however, must be aligned views into a memory
// map. Because torch.save compresses nothing, zip's directory is all that must be parsed.
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
  std::uint32_t crc = 0;  ///< CRC-32 of the content according to the directory; not verified
  /// Whether the compression method is not 0 ("stored").
  bool is_compressed = false;
};

/// Whether `bytes` begins with the signature of a zip entry.
bool is_zip(std::span<const std::byte> bytes);

/// CRC-32 as in zip and gzip.
std::uint32_t crc_32(std::span<const std::byte> bytes);

/// Returns the entries of the archive `bytes`, in the order of its directory, as views into
/// `bytes`. Throws a CheckpointError, whose message begins with `name`, if the archive does not end
/// with its directory, has several parts, or has comments, or if entries are encrypted, overlap,
/// share a name, or have headers that contradict the directory.
std::vector<ZipEntry> read_zip(std::span<const std::byte> bytes, std::string_view name);

/// Writes an archive piece by piece through `write`, which must append each piece to the file.
/// Contents begin at multiples of kZipAlignment, which aligns tensors for torch.load(mmap=True) and
/// for read_zip(). Sizes and offsets that do not fit into 32 bits are written as zip64 fields; the
/// zip64 end record is always written, as torch.save does.
class ZipWriter {
 public:
  explicit ZipWriter(std::function<void(std::string_view)> write) : write_(std::move(write)) {}

  /// `name` is UTF-8 of at most 65,535 bytes, and must be unique.
  void add(std::string_view name, std::span<const std::byte> content);
  void add(std::string_view name, std::string_view content);
  /// Writes the directory. Nothing may be added afterwards.
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
