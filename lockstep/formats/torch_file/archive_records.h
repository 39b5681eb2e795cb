// The named records of a zip archive that PyTorch wrote.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/formats/torch_file/zip_archive.h>

namespace lockstep::torch_file {

/// Records are views into the bytes of the archive, which must outlive them. Throws a
/// CheckpointError that begins with the archive's name if it is damaged.
class ArchiveRecords {
 public:
  /// `writer` is the function that writes such files, such as "torch.save".
  ArchiveRecords(std::span<const std::byte> bytes, std::string_view name, std::string_view writer);

  bool contains(std::string_view record) const { return records_.contains(record); }
  /// Throws if it is missing or compressed.
  std::span<const std::byte> at(std::string_view record) const;
  std::string_view text(std::string_view record) const;
  std::vector<std::string> names() const;

  /// Throws if the record "byteorder" exists and does not say "little".
  void require_little_endian() const;
  /// Verifies the CRC-32 of all records, none of which may be compressed. Returns false if the
  /// writer omitted the checksums: then all are 0.
  bool verify_checksums() const;

 private:
  std::string_view name_;
  std::string_view writer_;
  std::vector<ZipEntry> entries_;
  // Without the common folder, which has the name that the file had when it was written.
  std::map<std::string, const ZipEntry*, std::less<>> records_;
};

}  // namespace lockstep::torch_file
