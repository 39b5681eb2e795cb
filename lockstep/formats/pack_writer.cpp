#include <lockstep/formats/pack_writer.h>

#include <algorithm>
#include <cstring>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>

namespace lockstep::formats {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

template <class T>
std::string_view bytes_of_value(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(T)};
}

std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string encode_names(const PackInfo& info) {
  std::string text;
  const auto add = [&](const std::string& name) {
    text += bytes_of_value(static_cast<std::uint32_t>(name.size()));
    text += name;
  };
  add(info.name);
  for (const std::string& name : info.class_names) add(name);
  return text;
}

const PackInfo& checked(const PackInfo& info, std::int64_t records) {
  const OptionCheck check("PackWriter");
  check.at_least("records", static_cast<double>(records), 1);
  check.in_range("channels", static_cast<double>(info.channels), 1, 4);
  if (info.kind == PackKind::kFiles && info.channels != 3) {
    throw ConfigError(
        str("PackWriter: channels must be 3 for a pack of files, got ", info.channels));
  }
  check.in_range("num_classes", static_cast<double>(info.num_classes), 1,
                 static_cast<double>(kMaximumPackClasses));
  if (!info.class_names.empty()) {
    check.in_range("the number of class_names", static_cast<double>(info.class_names.size()),
                   static_cast<double>(info.num_classes), static_cast<double>(info.num_classes));
  }
  return info;
}

}  // namespace

PackWriter::PackWriter(const std::filesystem::path& path, const PackInfo& info,
                       std::int64_t records)
    : path_(path.string()), info_(checked(info, records)), file_(path) {
  const std::string names = encode_names(info);
  std::memcpy(header_.magic, kPackMagic.data(), kPackMagic.size());
  header_.version = kPackVersion;
  header_.kind = static_cast<std::uint32_t>(info.kind);
  header_.records = static_cast<std::uint64_t>(records);
  header_.classes = static_cast<std::uint32_t>(info.num_classes);
  header_.channels = static_cast<std::uint32_t>(info.channels);
  header_.names_bytes = names.size();
  table_.offset = sizeof(PackHeader);
  end_ = data_.offset = pack_data_offset(names.size(), header_.records);
  append_to_table(names);
  append_to_table(
      std::string(pack_index_offset(names.size()) - sizeof(PackHeader) - names.size(), '\0'));
}

void PackWriter::add(const PackRecord& record) {
  const auto& [bytes, label, height, width] = record;
  const auto length = static_cast<std::int64_t>(bytes.size());
  LOCKSTEP_CHECK(written_ < header_.records, path_, ": more than ", header_.records, " records");
  LOCKSTEP_CHECK(label >= 0 && label < info_.num_classes && std::min(height, width) >= 1 &&
                     std::max(height, width) <= kMaximumPackSide && length >= 1 &&
                     length <= kMaximumPackRecordBytes &&
                     (info_.kind == PackKind::kFiles || length == info_.channels * height * width),
                 path_, ": record ", written_, " of ", length, " bytes, ", height, "x", width,
                 " pixels, class ", label);
  // The shape of the first record is that of all until one differs.
  if (written_ == 0) {
    header_.height = static_cast<std::uint32_t>(height);
    header_.width = static_cast<std::uint32_t>(width);
  } else if (header_.height != height || header_.width != width) {
    header_.height = header_.width = 0;
  }
  const std::uint64_t offset = pack_aligned(end_, kPackRecordAlignment);
  append(data_, std::string(offset - end_, '\0'));
  append(data_, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  append_to_table(bytes_of_value(
      PackEntry{offset, checksum(bytes), static_cast<std::uint32_t>(length),
                static_cast<std::uint32_t>(label), static_cast<std::uint32_t>(height),
                static_cast<std::uint32_t>(width)}));
  end_ = offset + bytes.size();
  ++written_;
}

void PackWriter::finish() {
  LOCKSTEP_CHECK(written_ == header_.records, path_, ": ", written_, " of ", header_.records,
                 " records");
  const std::uint64_t table_end =
      pack_index_offset(header_.names_bytes) + header_.records * sizeof(PackEntry);
  append_to_table(
      std::string(pack_data_offset(header_.names_bytes, header_.records) - table_end, '\0'));
  flush(table_);
  flush(data_);
  header_.file_bytes = end_;
  header_.table_checksum = table_checksum_.value();
  header_.header_checksum = checksum(as_bytes(bytes_of_value(header_)).first(kPackHeaderChecked));
  file_.write_at(0, bytes_of_value(header_));
  file_.commit();
}

void PackWriter::append(Stream& stream, std::string_view piece) {
  stream.buffer += piece;
  if (stream.buffer.size() >= kBufferBytes) flush(stream);
}

void PackWriter::flush(Stream& stream) {
  file_.write_at(stream.offset, stream.buffer);
  stream.offset += stream.buffer.size();
  stream.buffer.clear();
}

void PackWriter::append_to_table(std::string_view piece) {
  table_checksum_.add(as_bytes(piece));
  append(table_, piece);
}

}  // namespace lockstep::formats
