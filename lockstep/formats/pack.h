// A packed image file: a whole data set in one file that is mapped and read in any order.
//
//   header    128 bytes: magic "LOCKPACK", version, the kind, number and shape of the records,
//             the checksums of the table and of the header itself
//   names     of the data set and of its classes: each a 32-bit length and that number of bytes
//   index     32 bytes a record: offset, checksum (64 bits each), length, label, height, width (32)
//   data      from the next multiple of 4,096 bytes on, each record at a multiple of 64, in order
//
// Little-endian; gaps are zero. Names and index together are the table. The positions of all parts
// follow from the numbers in the header, and a file that contradicts them is rejected.
// pack_writer.h writes the file; docs/adr/014-packed-images.md explains the design.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep::formats {

enum class PackKind : std::uint32_t {
  kFiles = 1,   ///< unchanged JPEG and PNG files, three channels when decoded
  kPixels = 2,  ///< 8-bit pixels, one plane per channel (CHW)
};

/// The properties that all records of a pack share.
struct PackInfo {
  PackKind kind = PackKind::kPixels;
  std::string name{};         ///< a description of the data set
  std::int64_t channels = 0;  ///< 1 to 4; 3 for files
  std::int64_t height = 0;    ///< height of every image; 0: each image has its own size
  std::int64_t width = 0;
  std::int64_t num_classes = 0;            ///< 1 to kMaximumPackClasses
  std::vector<std::string> class_names{};  ///< empty, or one name per class
};

/// One image. `bytes` is a view into the file.
struct PackRecord {
  std::span<const std::byte> bytes{};
  std::int64_t label = 0;   ///< 0 to num_classes - 1
  std::int64_t height = 0;  ///< pixels; for a JPEG or PNG, its size when packed
  std::int64_t width = 0;
};

/// The largest record, in bytes. The largest image that a decoder accepts by default is smaller,
/// even as RGB.
inline constexpr std::int64_t kMaximumPackRecordBytes = std::int64_t{1} << 30;
/// The longest side of an image in a pack.
inline constexpr std::int64_t kMaximumPackSide = 65'535;
/// The most classes of a pack: far more than any data set has, so that counts per class stay small.
inline constexpr std::int64_t kMaximumPackClasses = 1 << 20;

/// Whether `bytes`, the content of a file or at least its first 8 bytes, begin as a pack does.
bool is_pack(std::span<const std::byte> bytes);

/// A view of the bytes of a pack. Immutable and thread-safe. Copies are cheap except for the names.
class PackReader {
 public:
  /// Verifies the header and the table, including their checksums, and that every record lies in
  /// the file and has plausible values. Reads no image data. Throws a DataError that begins with
  /// `name` and states the problem. `bytes` must outlive the reader and its records.
  PackReader(std::span<const std::byte> bytes, std::string name);

  const PackInfo& info() const { return info_; }
  std::int64_t size() const { return size_; }
  /// The header's checksum. It covers the checksums of all records, their labels and all names:
  /// packs with equal fingerprints have equal content.
  std::uint64_t fingerprint() const { return fingerprint_; }

  /// Indices are not checked.
  PackRecord record(std::int64_t index) const;
  std::int64_t label(std::int64_t index) const;

  /// Reads a record completely. Throws a DataError if its checksum does not match.
  void verify(std::int64_t index) const { verify(index, record(index).bytes); }
  /// As above, for a copy of the record's bytes.
  void verify(std::int64_t index, std::span<const std::byte> bytes) const;
  /// The offset of a record in the file.
  std::size_t offset(std::int64_t index) const;

  /// The name of a record in messages: "images.pack: record 17".
  std::string record_name(std::int64_t index) const;

 private:
  void parse_header();
  void parse_names();
  void check_index() const;
  [[noreturn]] void refuse(const std::string& what) const;

  std::span<const std::byte> bytes_;
  std::string name_;
  PackInfo info_;
  std::int64_t size_ = 0;
  std::uint64_t fingerprint_ = 0;
  std::size_t names_bytes_ = 0;
  std::size_t index_offset_ = 0;
  std::size_t data_offset_ = 0;
};

}  // namespace lockstep::formats
