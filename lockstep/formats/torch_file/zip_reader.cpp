#include <libdeflate.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include <lockstep/core/encoding/utf8.h>
#include <lockstep/core/error.h>
#include <lockstep/formats/printable.h>
#include <lockstep/formats/torch_file/zip_archive.h>
#include <lockstep/formats/torch_file/zip_records.h>

namespace lockstep::torch_file {
namespace {

// Reads consecutive fields, from a position that the caller has checked.
class ZipFields {
 public:
  explicit ZipFields(std::span<const std::byte> bytes) : rest_(bytes) {}
  std::uint16_t u16() { return static_cast<std::uint16_t>(take(2)); }
  std::uint32_t u32() { return static_cast<std::uint32_t>(take(4)); }
  std::uint64_t u64() { return take(8); }
  std::size_t left() const { return rest_.size(); }
  std::span<const std::byte> bytes(std::size_t count) {
    const auto result = rest_.first(count);
    rest_ = rest_.subspan(count);
    return result;
  }

 private:
  std::uint64_t take(std::size_t count) {
    std::uint64_t value = 0;
    const auto field = bytes(count);
    for (std::size_t i = count; i-- > 0;)
      value = value << 8 | std::to_integer<std::uint64_t>(field[i]);
    return value;
  }
  std::span<const std::byte> rest_;
};

std::string zip_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

struct ZipDirectory {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t entries = 0;
  bool operator==(const ZipDirectory&) const = default;
};

// An entry of the directory.
struct ZipHeader {
  std::string name{};
  std::uint16_t flags = 0;
  std::uint16_t method = 0;
  std::uint32_t crc = 0;
  std::uint64_t bytes = 0;
  std::uint64_t packed_bytes = 0;
  std::uint64_t offset = 0;
};

class ZipReader {
 public:
  ZipReader(std::span<const std::byte> bytes, std::string_view name) : bytes_(bytes), name_(name) {}

  std::vector<ZipEntry> read() {
    const ZipDirectory directory = find_directory();
    ZipFields fields(bytes_.subspan(directory.offset, directory.bytes));
    std::vector<ZipEntry> entries;
    for (std::uint64_t i = 0; i < directory.entries; ++i) {
      const ZipHeader header = read_header(fields);
      if (!names_.insert(header.name).second)
        fail("two entries are called '", formats::printable(header.name), "'");
      entries.push_back({.name = header.name,
                         .content = find_content(header, directory.offset),
                         .crc = header.crc,
                         .is_compressed = header.method != 0});
    }
    if (fields.left() != 0)
      fail("the zip directory is longer than its ", directory.entries, " entries");
    check_overlaps();
    return entries;
  }

 private:
  template <class... Values>
  [[noreturn]] void fail(const Values&... values) const {
    throw CheckpointError(str(name_, ": ", values...));
  }
  template <class... Values>
  [[noreturn]] void fail_entry(const std::string& entry, const Values&... values) const {
    fail("entry '", formats::printable(entry), "' ", values...);
  }

  ZipDirectory find_directory() const {
    if (bytes_.size() < kEndBytes) fail("truncated zip file of ", bytes_.size(), " bytes");
    const std::size_t end_at = bytes_.size() - kEndBytes;
    ZipFields end(bytes_.subspan(end_at));
    if (end.u32() != kEndSignature) {
      fail(
          "the zip file does not end with its directory (truncated, or followed by something "
          "else)");
    }
    const bool one_part = end.u16() == 0 && end.u16() == 0;
    const std::uint64_t entries_here = end.u16();
    ZipDirectory directory{.entries = end.u16()};
    directory.bytes = end.u32();
    directory.offset = end.u32();
    if (!one_part || entries_here != directory.entries || end.u16() != 0) {
      fail("the zip file has several parts or a comment, expected neither");
    }
    const auto directory64 = find_directory_64(end_at);
    const std::size_t end_of_directory = directory64 ? directory64->second : end_at;
    if (directory64) directory = agreed(directory, directory64->first);
    if (directory.offset > end_of_directory ||
        directory.bytes != end_of_directory - directory.offset ||
        directory.entries > directory.bytes / kDirectoryBytes) {
      fail("the zip directory claims ", directory.bytes, " bytes from ", directory.offset,
           " on for ", directory.entries, " entries, the file has it end at ", end_of_directory);
    }
    return directory;
  }

  // The directory according to the zip64 records, and their position; nothing if there are none.
  std::optional<std::pair<ZipDirectory, std::size_t>> find_directory_64(std::size_t end_at) const {
    if (end_at < kLocator64Bytes + kEnd64Bytes) return std::nullopt;
    const std::size_t locator_at = end_at - kLocator64Bytes;
    const std::size_t end64_at = locator_at - kEnd64Bytes;
    ZipFields locator(bytes_.subspan(locator_at, kLocator64Bytes));
    if (locator.u32() != kLocator64Signature) return std::nullopt;
    const bool first_part = locator.u32() == 0;
    const bool place_fits = locator.u64() == end64_at;
    const bool of_one = locator.u32() == 1;
    ZipFields end64(bytes_.subspan(end64_at, kEnd64Bytes));
    const bool record_fits = end64.u32() == kEnd64Signature && end64.u64() == kEnd64Bytes - 12;
    end64.u32();  // versions
    const bool one_part = end64.u32() == 0 && end64.u32() == 0;
    const std::uint64_t entries_here = end64.u64();
    ZipDirectory directory{.entries = end64.u64()};
    directory.bytes = end64.u64();
    directory.offset = end64.u64();
    if (!first_part || !place_fits || !of_one || !record_fits || !one_part ||
        entries_here != directory.entries) {
      fail("the zip64 records at byte ", end64_at,
           " contradict each other or are of several parts");
    }
    return std::pair(directory, end64_at);
  }

  // The 32-bit record repeats the numbers that fit into it and marks the others.
  ZipDirectory agreed(const ZipDirectory& plain, const ZipDirectory& exact) const {
    const auto agrees = [](std::uint64_t value, std::uint64_t wanted, std::uint64_t marker) {
      return value == wanted || value == marker;
    };
    if (!agrees(plain.entries, exact.entries, kCountIn64Bits) ||
        !agrees(plain.bytes, exact.bytes, kIn64Bits) ||
        !agrees(plain.offset, exact.offset, kIn64Bits)) {
      fail("the two ends of the zip directory contradict each other");
    }
    return exact;
  }

  ZipHeader read_header(ZipFields& fields) const {
    if (fields.left() < kDirectoryBytes || fields.u32() != kDirectorySignature) {
      fail("the zip directory is damaged: no entry where one was expected");
    }
    fields.u32();  // versions
    ZipHeader header;
    header.flags = fields.u16();
    header.method = fields.u16();
    fields.u32();  // time
    header.crc = fields.u32();
    header.packed_bytes = fields.u32();
    header.bytes = fields.u32();
    const std::size_t name_bytes = fields.u16();
    const std::size_t extra_bytes = fields.u16();
    const std::size_t comment_bytes = fields.u16();
    const std::uint16_t part = fields.u16();
    fields.u16(), fields.u32();  // attributes
    header.offset = fields.u32();
    if (fields.left() < name_bytes + extra_bytes + comment_bytes) {
      fail("the zip directory is damaged: an entry is longer than the directory");
    }
    header.name = zip_text(fields.bytes(name_bytes));
    read_extra(fields.bytes(extra_bytes), header);
    if (part != 0 || comment_bytes != 0)
      fail_entry(header.name, "has a comment or lies in another part");
    check_header(header);
    return header;
  }

  // Reads the 64-bit numbers that the header refers to.
  void read_extra(std::span<const std::byte> bytes, ZipHeader& header) const {
    ZipFields fields(bytes);
    while (fields.left() >= 4) {
      const std::uint16_t kind = fields.u16();
      const std::size_t size = fields.u16();
      if (size > fields.left()) break;
      ZipFields field(fields.bytes(size));
      if (kind != kZip64Field) continue;
      for (std::uint64_t* number : {&header.bytes, &header.packed_bytes, &header.offset}) {
        if (*number == kIn64Bits && field.left() >= 8) *number = field.u64();
      }
      return;
    }
  }

  void check_header(const ZipHeader& header) const {
    if (header.name.empty() || !is_utf8(header.name) ||
        std::any_of(header.name.begin(), header.name.end(),
                    [](char c) { return static_cast<unsigned char>(c) < 0x20; })) {
      fail_entry(header.name, "has a name that is empty or no text");
    }
    if ((header.flags & ~(kFlagDescriptor | kFlagUtf8)) != 0) {
      fail_entry(header.name, "is encrypted or has flags that torch.save does not write (",
                 header.flags, ")");
    }
    if (header.method == 0 && header.packed_bytes != header.bytes) {
      fail_entry(header.name, "has ", header.packed_bytes, " bytes in the file and ", header.bytes,
                 " when it is unpacked, but is not compressed");
    }
  }

  std::span<const std::byte> find_content(const ZipHeader& header, std::uint64_t end) {
    if (header.offset > end || end - header.offset < kLocalBytes) {
      fail_entry(header.name, "begins at byte ", header.offset,
                 ", which leaves no room for it before the "
                 "zip directory at ",
                 end);
    }
    ZipFields fields(bytes_.subspan(header.offset, end - header.offset));
    const bool signature_fits = fields.u32() == kLocalSignature;
    fields.u16();  // version
    const std::uint16_t flags = fields.u16();
    const std::uint16_t method = fields.u16();
    fields.u32();  // time
    const std::uint32_t crc = fields.u32();
    const std::uint64_t packed_bytes = fields.u32();
    const std::uint64_t bytes = fields.u32();
    const std::size_t name_bytes = fields.u16();
    const std::size_t extra_bytes = fields.u16();
    if (!signature_fits || fields.left() < name_bytes + extra_bytes ||
        zip_text(fields.bytes(name_bytes)) != header.name || flags != header.flags ||
        method != header.method) {
      fail_entry(header.name, "is damaged: what stands at byte ", header.offset,
                 " is not its header");
    }
    fields.bytes(extra_bytes);
    const auto agrees = [](std::uint64_t value, std::uint64_t wanted) {
      return value == wanted || value == kIn64Bits;
    };
    if ((flags & kFlagDescriptor) == 0 &&
        (crc != header.crc || !agrees(packed_bytes, header.packed_bytes) ||
         !agrees(bytes, header.bytes))) {
      fail_entry(header.name, "is damaged: its header at byte ", header.offset,
                 " contradicts the zip directory");
    }
    if (header.packed_bytes > fields.left()) {
      fail_entry(header.name, "claims ", header.packed_bytes, " bytes, ", fields.left(),
                 " are left before the zip directory");
    }
    ranges_.emplace_back(header.offset, end - fields.left() + header.packed_bytes);
    return fields.bytes(header.packed_bytes);
  }

  void check_overlaps() {
    std::sort(ranges_.begin(), ranges_.end());
    for (std::size_t i = 1; i < ranges_.size(); ++i) {
      if (ranges_[i].first < ranges_[i - 1].second) {
        fail("zip entries overlap at byte ", ranges_[i].first);
      }
    }
  }

  std::span<const std::byte> bytes_;
  std::string_view name_;
  std::set<std::string> names_;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges_;
};

}  // namespace

bool is_zip(std::span<const std::byte> bytes) {
  return bytes.size() >= 4 && ZipFields(bytes).u32() == kLocalSignature;
}

std::uint32_t crc_32(std::span<const std::byte> bytes) {
  return libdeflate_crc32(0, bytes.data(), bytes.size());
}

std::vector<ZipEntry> read_zip(std::span<const std::byte> bytes, std::string_view name) {
  return ZipReader(bytes, name).read();
}

}  // namespace lockstep::torch_file
