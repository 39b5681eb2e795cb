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

namespace lockstep::formats {

/// The file appears at its path in finish(); if finish() is not reached, no file is left. Takes a
/// few megabytes of memory, whatever the number of records. Not thread-safe.
///
///   PackWriter writer("images.pack", {.kind = PackKind::kPixels, .name = "x", ...}, 1000);
///   for (...) writer.add({pixels, label, height, width});
///   writer.finish();
class PackWriter {
 public:
  /// Prepares a pack of exactly `records` records. `info` describes the pack to readers. Its height
  /// and width are ignored: the file gets the size that all images share, or 0 if their sizes
  /// differ. Throws a ConfigError for an invalid number, and a DataError if the file cannot be
  /// created.
  PackWriter(const std::filesystem::path& path, const PackInfo& info, std::int64_t records);

  /// Appends a record. Throws a DataError if the disk is full, and an InternalError for a record
  /// that a reader would reject or that exceeds the number of records.
  void add(const PackRecord& record);

  /// Completes the file. Throws a DataError if that fails, and an InternalError if records are
  /// missing.
  void finish();

  /// The size of the file so far; after finish(), the final size.
  std::uint64_t bytes() const { return end_; }

 private:
  // Consecutive pieces, written a megabyte at a time.
  struct Stream {
    std::uint64_t offset = 0;  // position of the buffer in the file
    std::string buffer;
  };
  void append(Stream& stream, std::string_view piece);
  void flush(Stream& stream);
  void append_to_table(std::string_view piece);

  std::string path_;
  PackInfo info_;
  AtomicFile file_;  // declared after info_, which is validated before a file is created
  PackHeader header_{};
  Stream table_;
  Stream data_;
  Checksum table_checksum_;
  std::uint64_t end_ = 0;  // end of the last record
  std::uint64_t written_ = 0;
};

}  // namespace lockstep::formats
