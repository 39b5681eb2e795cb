// Writes a packed image file (pack.h), record by record.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include <lockstep/core/atomic_file.h>
#include <lockstep/formats/checksum.h>
#include <lockstep/formats/pack.h>
#include <lockstep/formats/pack_layout.h>

namespace lockstep {

/// The file appears at its path in finish(); when that is not reached, nothing is left. Memory is
/// some megabytes, whatever the number of records. For one thread at a time.
///
///   PackWriter writer("images.pack", {.kind = PackKind::kPixels, .name = "x", ...}, 1000);
///   for (...) writer.add({pixels, label, height, width});
///   writer.finish();
class PackWriter {
 public:
  /// For exactly `records` records. `info` as a reader shall see it; its height and width become
  /// those of the images where all have the same, whatever they are here. ConfigError when a number
  /// cannot be; DataError when no file can be made there.
  PackWriter(const std::filesystem::path& path, const PackInfo& info, std::int64_t records);

  /// Appends a record. DataError when the disk is full; InternalError for a record that a reader
  /// would refuse, or one too many.
  void add(const PackRecord& record);

  /// DataError when the file cannot be completed; InternalError before all records are there.
  void finish();

  /// So far; after finish() of the file.
  std::uint64_t bytes() const { return end_; }

 private:
  // Pieces that follow each other, written a megabyte at a time.
  struct Stream {
    std::uint64_t offset = 0;  // of the buffer in the file
    std::string buffer;
  };
  void append(Stream& stream, std::string_view piece);
  void flush(Stream& stream);
  void append_to_table(std::string_view piece);

  std::string path_;
  PackInfo info_;
  AtomicFile file_;  // after info_, which is checked before a file is made
  PackHeader header_{};
  Stream table_;
  Stream data_;
  Checksum table_checksum_;
  std::uint64_t end_ = 0;  // of the last record
  std::uint64_t written_ = 0;
};

}  // namespace lockstep
