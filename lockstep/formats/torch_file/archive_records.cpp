#include <lockstep/formats/torch_file/archive_records.h>

#include <algorithm>

#include <lockstep/core/error.h>
#include <lockstep/formats/printable.h>

namespace lockstep::torch_file {
namespace {

using formats::printable;

template <class... Values>
[[noreturn]] void fail(std::string_view name, const Values&... values) {
  throw CheckpointError(str(name, ": ", values...));
}

}  // namespace

ArchiveRecords::ArchiveRecords(std::span<const std::byte> bytes, std::string_view name,
                               std::string_view writer)
    : name_(name), writer_(writer), entries_(read_zip(bytes, name)) {
  const std::string_view first = entries_.empty() ? std::string_view() : entries_.front().name;
  // Before PyTorch 2.8, torch.export.save wrote no folder.
  const std::size_t root = first.find('/');
  if (entries_.empty() || (root == std::string_view::npos && writer == "torch.save")) {
    fail(name, "the zip file is not one of ", writer, ": it has no folder");
  }
  const std::size_t prefix = root == std::string_view::npos ? 0 : root + 1;
  for (const ZipEntry& entry : entries_) {
    if (!entry.name.starts_with(first.substr(0, prefix))) {
      fail(name, "the zip file is not one of ", writer, ": '", printable(entry.name),
           "' lies outside of the folder '", printable(first.substr(0, root)), "'");
    }
    records_.emplace(entry.name.substr(prefix), &entry);
  }
}

std::span<const std::byte> ArchiveRecords::at(std::string_view record) const {
  const auto found = records_.find(record);
  if (found == records_.end()) {
    fail(name_, "the zip file is not one of ", writer_, ": it has no '", printable(record), "'");
  }
  if (found->second->is_compressed) {
    fail(name_, "entry '", printable(found->second->name),
         "' is compressed, expected it as it is: unpack the file "
         "and pack it again without compression, or write it again by ",
         writer_);
  }
  return found->second->content;
}

std::string_view ArchiveRecords::text(std::string_view record) const {
  const auto bytes = at(record);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<std::string> ArchiveRecords::names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : records_) names.push_back(name);
  return names;
}

void ArchiveRecords::require_little_endian() const {
  if (!contains("byteorder")) return;  // written before PyTorch 2.1: little-endian
  const std::string_view order = text("byteorder");
  if (order == "little") return;
  fail(name_, "the byte order is '", printable(order),
       "', expected little; load the file in Python on any machine and save it on a "
       "little-endian one");
}

bool ArchiveRecords::verify_checksums() const {
  for (const auto& [record, entry] : records_) at(record);  // refuses compressed ones
  const bool has_checksums = std::any_of(entries_.begin(), entries_.end(),
                                         [](const ZipEntry& entry) { return entry.crc != 0; });
  if (!has_checksums) return false;
  for (const ZipEntry& entry : entries_) {
    if (const std::uint32_t got = crc_32(entry.content); got != entry.crc) {
      fail(name_, "entry '", printable(entry.name), "' is damaged: its CRC-32 is ", got,
           ", expected ", entry.crc);
    }
  }
  return true;
}

}  // namespace lockstep::torch_file
