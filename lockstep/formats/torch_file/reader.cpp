#include <algorithm>
#include <charconv>
#include <map>

#include <lockstep/core/error.h>
#include <lockstep/formats/printable.h>
#include <lockstep/formats/torch_file.h>
#include <lockstep/formats/torch_file/collected_tensors.h>
#include <lockstep/formats/torch_file/legacy.h>
#include <lockstep/formats/torch_file/read_pickle.h>
#include <lockstep/formats/torch_file/zip_archive.h>

namespace lockstep {
namespace torch_file {
namespace {

// The versions that torch.load of PyTorch 2.13 reads.
constexpr int kOldestVersion = 1;
constexpr int kNewestVersion = 10;
constexpr std::string_view kDataFolder = "data/";

std::string_view record_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class ArchiveReader {
 public:
  ArchiveReader(std::span<const std::byte> bytes, std::string_view name)
      : name_(name), entries_(read_zip(bytes, name)) {}

  TorchFile read() {
    name_records();
    check_kind();
    TorchFile file;
    file.has_checksums = check_crcs();
    const auto bytes = record("data.pkl");
    const std::string pickle_name = str(name_, ": data.pkl");
    const Pickle pickle = read_pickle(bytes, pickle_name);
    if (pickle.bytes != bytes.size()) {
      fail("data.pkl: ", bytes.size() - pickle.bytes, " bytes follow the pickle");
    }
    const CollectedTensors collected = collect_tensors(pickle, name_);
    StorageBytes storages;
    for (const auto& [key, storage] : collected.storages) {
      const auto found = records_.find(str(kDataFolder, key));
      if (found != records_.end()) storages.emplace(key, found->second);
    }
    file.content = pickle.value;
    file.tensors = tensors_over(collected, storages, name_);
    return file;
  }

 private:
  template <class... Values>
  [[noreturn]] void fail(const Values&... values) const {
    throw CheckpointError(str(name_, ": ", values...));
  }

  // All entries are in one folder, which has the name that the file had when it was written.
  void name_records() {
    const std::string_view first = entries_.empty() ? std::string_view() : entries_.front().name;
    const std::size_t root = first.find('/');
    if (root == std::string_view::npos)
      fail("the zip file is not one of torch.save: it has no folder");
    for (const ZipEntry& entry : entries_) {
      if (!entry.name.starts_with(first.substr(0, root + 1))) {
        fail("the zip file is not one of torch.save: '", formats::printable(entry.name),
             "' lies outside of the folder '", formats::printable(first.substr(0, root)), "'");
      }
      records_.emplace(entry.name.substr(root + 1), entry.content);
    }
  }

  std::span<const std::byte> record(const std::string& record_name) const {
    const auto found = records_.find(record_name);
    if (found == records_.end()) {
      fail("the zip file is not one of torch.save: it has no '", record_name, "'");
    }
    return found->second;
  }

  void check_kind() const {
    if (records_.contains("constants.pkl")) {
      fail(
          "a TorchScript archive, which holds code: torch.jit.save wrote it, or torch::save of "
          "C++. Save the module's state_dict() by torch.save in Python, or its state_dict by "
          "save_torch_file() in C++");
    }
    for (const ZipEntry& entry : entries_) {
      if (!entry.is_compressed) continue;
      fail("entry '", formats::printable(entry.name),
           "' is compressed, expected it as it is: unpack the file "
           "and pack it again without compression, or write it again by torch.save");
    }
    record("data.pkl");
    std::string_view text = record_text(record("version"));
    if (text.ends_with('\n')) text.remove_suffix(1);
    int version = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), version);
    if (error != std::errc() || stop != text.data() + text.size() || version < kOldestVersion ||
        version > kNewestVersion) {
      fail("the version of its format is '", formats::printable(text), "', expected ",
           kOldestVersion, " to ", kNewestVersion);
    }
    if (!records_.contains("byteorder")) return;  // written before PyTorch 2.1: little-endian
    const std::string_view order = record_text(record("byteorder"));
    if (order == "little") return;
    fail("the byte order is '", formats::printable(order),
         "', expected little; load the file in Python on any machine and save it on a "
         "little-endian one");
  }

  // False if torch.save was told to omit them: then all are 0.
  bool check_crcs() const {
    const bool has_checksums = std::any_of(entries_.begin(), entries_.end(),
                                           [](const ZipEntry& entry) { return entry.crc != 0; });
    if (!has_checksums) return false;
    for (const ZipEntry& entry : entries_) {
      if (const std::uint32_t got = crc_32(entry.content); got != entry.crc) {
        fail("entry '", formats::printable(entry.name), "' is damaged: its CRC-32 is ", got,
             ", expected ", entry.crc);
      }
    }
    return true;
  }

  std::string_view name_;
  std::vector<ZipEntry> entries_;
  std::map<std::string, std::span<const std::byte>, std::less<>> records_;
};

}  // namespace
}  // namespace torch_file

bool is_torch_file(std::span<const std::byte> bytes) {
  return torch_file::is_zip(bytes) || torch_file::is_legacy(bytes);
}

TorchFile parse_torch_file(std::span<const std::byte> bytes, std::string_view name) {
  if (torch_file::is_legacy(bytes)) return torch_file::parse_legacy(bytes, name);
  if (!torch_file::is_zip(bytes)) {
    throw CheckpointError(str(name,
                              ": neither a zip file nor one of torch.save before PyTorch 1.6, but ",
                              bytes.size(), " bytes of something else"));
  }
  return torch_file::ArchiveReader(bytes, name).read();
}

}  // namespace lockstep
