#include <algorithm>
#include <utility>

#include <lockstep/formats/torch_file/zip_archive.h>
#include <lockstep/formats/torch_file/zip_records.h>

namespace lockstep::torch_file {
namespace {

constexpr std::uint16_t kPaddingField = 0x4246;  // "FB", torch.save's own
constexpr std::uint64_t kFieldHeaderBytes = 4;
constexpr std::uint64_t kVersion = 45;       // version of zip64
constexpr std::uint64_t kTime = 0x00210000;  // always 1 January 1980: files are reproducible

std::uint64_t in_32_bits(std::uint64_t value) { return std::min(value, kIn64Bits); }

// The extra field with the numbers that do not fit into 32 bits; empty if all fit.
std::string zip64_field(std::initializer_list<std::uint64_t> numbers) {
  ZipRecord values;
  for (const std::uint64_t number : numbers) {
    if (number >= kIn64Bits) values.u64(number);
  }
  if (values.text().empty()) return "";
  ZipRecord header;
  header.u16(kZip64Field).u16(values.text().size());
  return header.text() + values.text();
}

}  // namespace

void ZipWriter::write(std::string_view piece) {
  write_(piece);
  at_ += piece.size();
}

void ZipWriter::add(std::string_view name, std::span<const std::byte> content) {
  const Written entry{
      .name = std::string(name), .offset = at_, .bytes = content.size(), .crc = crc_32(content)};
  std::string extra = zip64_field({entry.bytes, entry.bytes});
  const std::uint64_t begin = at_ + kLocalBytes + name.size() + extra.size() + kFieldHeaderBytes;
  const std::uint64_t padding = (kZipAlignment - begin % kZipAlignment) % kZipAlignment;
  ZipRecord field;
  field.u16(kPaddingField).u16(padding);
  extra += field.text() + std::string(padding, 'Z');
  ZipRecord header;
  header.u32(kLocalSignature).u16(kVersion).u16(kFlagUtf8).u16(0).u32(kTime).u32(entry.crc);
  header.u32(in_32_bits(entry.bytes)).u32(in_32_bits(entry.bytes));
  header.u16(name.size()).u16(extra.size());
  write(header.text() + entry.name + extra);
  write({reinterpret_cast<const char*>(content.data()), content.size()});
  entries_.push_back(entry);
}

void ZipWriter::add(std::string_view name, std::string_view content) {
  add(name, std::as_bytes(std::span(content.data(), content.size())));
}

void ZipWriter::finish() {
  const std::uint64_t begin = at_;
  for (const Written& entry : entries_) {
    const std::string extra = zip64_field({entry.bytes, entry.bytes, entry.offset});
    ZipRecord header;
    header.u32(kDirectorySignature).u16(kVersion).u16(kVersion).u16(kFlagUtf8).u16(0).u32(kTime);
    header.u32(entry.crc).u32(in_32_bits(entry.bytes)).u32(in_32_bits(entry.bytes));
    header.u16(entry.name.size()).u16(extra.size()).u16(0).u16(0).u16(0).u32(0);
    header.u32(in_32_bits(entry.offset));
    write(header.text() + entry.name + extra);
  }
  const std::uint64_t end = at_;
  ZipRecord record;  // always a zip64 field, as torch.save writes it
  record.u32(kEnd64Signature).u64(kEnd64Bytes - 12).u16(kVersion).u16(kVersion).u32(0).u32(0);
  record.u64(entries_.size()).u64(entries_.size()).u64(end - begin).u64(begin);
  record.u32(kLocator64Signature).u32(0).u64(end).u32(1);
  const std::uint64_t count = std::min<std::uint64_t>(entries_.size(), kCountIn64Bits);
  record.u32(kEndSignature).u16(0).u16(0).u16(count).u16(count);
  record.u32(in_32_bits(end - begin)).u32(in_32_bits(begin)).u16(0);
  write(record.text());
}

}  // namespace lockstep::torch_file
