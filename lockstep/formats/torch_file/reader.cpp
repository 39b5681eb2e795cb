#include <charconv>

#include <lockstep/core/error.h>
#include <lockstep/formats/printable.h>
#include <lockstep/formats/torch_file.h>
#include <lockstep/formats/torch_file/archive_records.h>
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

class ArchiveReader {
 public:
  ArchiveReader(std::span<const std::byte> bytes, std::string_view name)
      : name_(name), records_(bytes, name, "torch.save") {}

  TorchFile read() {
    check_kind();
    TorchFile file;
    file.has_checksums = records_.verify_checksums();
    const auto bytes = records_.at("data.pkl");
    const std::string pickle_name = str(name_, ": data.pkl");
    const Pickle pickle = read_pickle(bytes, pickle_name);
    if (pickle.bytes != bytes.size()) {
      fail("data.pkl: ", bytes.size() - pickle.bytes, " bytes follow the pickle");
    }
    const CollectedTensors collected = collect_tensors(pickle, name_);
    StorageBytes storages;
    for (const auto& [key, storage] : collected.storages) {
      const std::string record = str(kDataFolder, key);
      if (records_.contains(record)) storages.emplace(key, records_.at(record));
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

  void check_kind() const {
    if (records_.contains("constants.pkl")) {
      fail(
          "a TorchScript archive, which holds code: torch.jit.save wrote it, or torch::save of "
          "C++. Save the module's state_dict() by torch.save in Python, or its state_dict by "
          "save_torch_file() in C++");
    }
    records_.at("data.pkl");
    std::string_view text = records_.text("version");
    if (text.ends_with('\n')) text.remove_suffix(1);
    int version = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), version);
    if (error != std::errc() || stop != text.data() + text.size() || version < kOldestVersion ||
        version > kNewestVersion) {
      fail("the version of its format is '", formats::printable(text), "', expected ",
           kOldestVersion, " to ", kNewestVersion);
    }
    records_.require_little_endian();
  }

  std::string_view name_;
  ArchiveRecords records_;
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
