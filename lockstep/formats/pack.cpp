#include <lockstep/formats/pack.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/formats/checksum.h>
#include <lockstep/formats/pack_layout.h>

namespace lockstep::formats {
namespace {

constexpr const char* kAgain = "; make it again with `lockstep data pack`";

template <class T>
T load(std::span<const std::byte> bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

PackEntry entry_at(std::span<const std::byte> bytes, std::size_t index_offset, std::int64_t index) {
  return load<PackEntry>(bytes, index_offset + static_cast<std::size_t>(index) * sizeof(PackEntry));
}

// Checks the size of pixels; a file may have any size.
bool has_right_size(const PackInfo& info, const PackEntry& entry) {
  const auto bytes = static_cast<std::int64_t>(entry.bytes);
  if (info.kind == PackKind::kFiles) return bytes > 0 && bytes <= kMaximumPackRecordBytes;
  return bytes == info.channels * entry.height * entry.width && bytes <= kMaximumPackRecordBytes;
}

bool has_right_shape(const PackInfo& info, const PackEntry& entry) {
  if (info.height != 0) return entry.height == info.height && entry.width == info.width;
  return std::min(entry.height, entry.width) >= 1 &&
         std::max(entry.height, entry.width) <= kMaximumPackSide;
}

// Whether a pack can have the kind, shape and numbers of the header.
bool is_possible(const PackHeader& header) {
  const bool has_files = header.kind == static_cast<std::uint32_t>(PackKind::kFiles);
  const bool has_pixels = header.kind == static_cast<std::uint32_t>(PackKind::kPixels);
  const bool right_channels =
      has_files ? header.channels == 3 : header.channels >= 1 && header.channels <= 4;
  const bool right_shape = (header.height == 0) == (header.width == 0) &&
                           std::max(header.height, header.width) <= kMaximumPackSide;
  const bool right_classes = header.classes >= 1 && header.classes <= kMaximumPackClasses;
  return (has_files || has_pixels) && header.records > 0 && right_channels && right_shape &&
         right_classes;
}

}  // namespace

bool is_pack(std::span<const std::byte> bytes) {
  return bytes.size() >= kPackMagic.size() &&
         std::memcmp(bytes.data(), kPackMagic.data(), kPackMagic.size()) == 0;
}

PackReader::PackReader(std::span<const std::byte> bytes, std::string name)
    : bytes_(bytes), name_(std::move(name)) {
  parse_header();
  parse_names();
  check_index();
}

PackRecord PackReader::record(std::int64_t index) const {
  const PackEntry entry = entry_at(bytes_, index_offset_, index);
  return {bytes_.subspan(entry.offset, entry.bytes), entry.label, entry.height, entry.width};
}

std::int64_t PackReader::label(std::int64_t index) const {
  return entry_at(bytes_, index_offset_, index).label;
}

std::size_t PackReader::offset(std::int64_t index) const {
  return entry_at(bytes_, index_offset_, index).offset;
}

void PackReader::verify(std::int64_t index, std::span<const std::byte> bytes) const {
  if (formats::checksum(bytes) != entry_at(bytes_, index_offset_, index).checksum) {
    throw DataError(record_name(index) + " is damaged: its checksum is wrong" + kAgain);
  }
}

std::string PackReader::record_name(std::int64_t index) const {
  return name_ + ": record " + std::to_string(index);
}

void PackReader::refuse(const std::string& what) const {
  throw DataError(name_ + ": " + what + kAgain);
}

void PackReader::parse_header() {
  if (bytes_.size() < sizeof(PackHeader) || !is_pack(bytes_)) {
    throw DataError(str(name_,
                        " is not a packed image file, which `lockstep data pack` writes: got ",
                        bytes_.size(), " bytes, expected at least ", sizeof(PackHeader),
                        " that begin with ", formats::kPackMagic));
  }
  const auto header = load<PackHeader>(bytes_, 0);
  if (header.version != formats::kPackVersion) {
    refuse(str("got version ", header.version, " of the format, expected ", formats::kPackVersion));
  }
  if (formats::checksum(bytes_.first(formats::kPackHeaderChecked)) != header.header_checksum) {
    refuse("is damaged: the header's checksum is wrong");
  }
  if (header.file_bytes != bytes_.size()) {
    refuse(str("got ", bytes_.size(), " bytes, expected ", header.file_bytes,
               " by its header: it was cut short or added to"));
  }
  const auto most = static_cast<std::uint64_t>(bytes_.size());
  if (header.names_bytes > most || header.records > most / sizeof(PackEntry) ||
      formats::pack_data_offset(header.names_bytes, header.records) > most) {
    refuse(str("got ", header.records, " records and ", header.names_bytes,
               " bytes of names, which do not fit into its ", most, " bytes"));
  }
  if (!is_possible(header)) {
    refuse(str("got ", header.records, " records of kind ", header.kind, ", ", header.channels, "x",
               header.height, "x", header.width, ", in ", header.classes,
               " classes, which cannot be"));
  }
  size_ = static_cast<std::int64_t>(header.records);
  fingerprint_ = header.header_checksum;
  names_bytes_ = header.names_bytes;
  index_offset_ = formats::pack_index_offset(header.names_bytes);
  data_offset_ = formats::pack_data_offset(header.names_bytes, header.records);
  info_ = {static_cast<PackKind>(header.kind),
           {},
           header.channels,
           header.height,
           header.width,
           header.classes,
           {}};
  const auto table = bytes_.subspan(sizeof(PackHeader), data_offset_ - sizeof(PackHeader));
  if (formats::checksum(table) != header.table_checksum) {
    refuse("is damaged: the checksum of its names and index is wrong");
  }
}

void PackReader::parse_names() {
  std::span<const std::byte> rest = bytes_.subspan(sizeof(PackHeader), names_bytes_);
  const std::size_t expected = static_cast<std::size_t>(info_.num_classes) + 1;
  std::vector<std::string> names;
  // Many empty names would take more memory than the file.
  while (!rest.empty() && names.size() <= expected) {
    std::uint32_t length = 0;
    if (rest.size() < sizeof(length)) refuse("its names end within a length");
    length = load<std::uint32_t>(rest, 0);
    rest = rest.subspan(sizeof(length));
    if (length > rest.size()) refuse(str("name ", names.size(), " is longer than all names"));
    names.emplace_back(reinterpret_cast<const char*>(rest.data()), length);
    rest = rest.subspan(length);
  }
  if (names.size() != 1 && names.size() != expected) {
    refuse(str("got ", rest.empty() ? "" : "at least ", names.size(), " names, expected 1 or ",
               expected, ": of the data set and of its classes"));
  }
  info_.name = std::move(names.front());
  info_.class_names.assign(std::make_move_iterator(names.begin() + 1),
                           std::make_move_iterator(names.end()));
}

void PackReader::check_index() const {
  std::uint64_t end = data_offset_;
  for (std::int64_t i = 0; i < size_; ++i) {
    const PackEntry entry = entry_at(bytes_, index_offset_, i);
    const std::uint64_t expected = formats::pack_aligned(end, formats::kPackRecordAlignment);
    if (entry.offset != expected || expected > bytes_.size() ||
        entry.bytes > bytes_.size() - expected) {
      refuse(str("record ", i, " of ", entry.bytes, " bytes at ", entry.offset, ", expected at ",
                 expected, ", in a file of ", bytes_.size()));
    }
    if (!has_right_shape(info_, entry) || !has_right_size(info_, entry) ||
        entry.label >= info_.num_classes) {
      refuse(str("record ", i, " of ", entry.bytes, " bytes claims ", entry.height, "x",
                 entry.width, " pixels of class ", entry.label, ", which cannot be"));
    }
    end = entry.offset + entry.bytes;
  }
  if (end != bytes_.size()) {
    refuse(str("got ", bytes_.size(), " bytes, expected the last record to end them at ", end));
  }
}

}  // namespace lockstep::formats
