#include <lockstep/formats/torch_file/legacy.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include <lockstep/core/error.h>
#include <lockstep/formats/printable.h>
#include <lockstep/formats/torch_file/collected_tensors.h>
#include <lockstep/formats/torch_file/read_pickle.h>

namespace lockstep::torch_file {
namespace {

// pickle.dumps(0x1950a86a20f9469cfc6c, 2)
constexpr std::array<unsigned char, 15> kMagic = {0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46,
                                                  0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, 0x2e};
constexpr std::int64_t kLegacyVersion = 1001;
constexpr std::size_t kCountBytes = 8;

class LegacyReader {
 public:
  LegacyReader(std::span<const std::byte> bytes, std::string_view name)
      : rest_(bytes.subspan(kMagic.size())), name_(name) {}

  TorchFile read() {
    const Pickle version = next_pickle("protocol version");
    const auto* number = std::get_if<std::int64_t>(&version.value->content);
    if (number == nullptr || *number != kLegacyVersion) {
      fail("the version of the old format of torch.save is not ", kLegacyVersion);
    }
    check_machine(next_pickle("facts of the machine"));
    const Pickle content = next_pickle("content");
    const CollectedTensors collected = collect_tensors(content, name_);
    const Pickle keys = next_pickle("keys of the storages");
    const StorageBytes storages = read_storages(keys, collected);
    return {.content = content.value, .tensors = tensors_over(collected, storages, name_)};
  }

 private:
  template <class... Values>
  [[noreturn]] void fail(const Values&... values) const {
    throw CheckpointError(str(name_, ": ", values...));
  }

  Pickle next_pickle(const char* what) {
    Pickle pickle = read_pickle(rest_, str(name_, ": ", what));
    rest_ = rest_.subspan(pickle.bytes);
    return pickle;
  }

  void check_machine(const Pickle& facts) const {
    const auto* dict = std::get_if<PickleDict>(&facts.value->content);
    const PickleRef little = dict == nullptr ? nullptr : dict->find("little_endian");
    const auto* is_little = little ? std::get_if<bool>(&little->content) : nullptr;
    if (is_little == nullptr) fail("the file does not say whether its bytes are little-endian");
    if (!*is_little) fail("the file is big-endian; write it again on a little-endian machine");
  }

  StorageBytes read_storages(const Pickle& keys, const CollectedTensors& collected) {
    const auto* list = std::get_if<PickleList>(&keys.value->content);
    if (list == nullptr) fail("the keys of the storages are not a list");
    StorageBytes storages;
    for (const PickleRef& item : list->items) {
      const auto* key = std::get_if<std::string>(&item->content);
      // A storage may have an empty key, but a value that is no text is none.
      const auto known = key == nullptr ? collected.storages.end() : collected.storages.find(*key);
      if (known == collected.storages.end()) fail("there is a storage that no tensor has");
      const std::size_t size = element_bytes(*known->second);
      if (size == 0) {
        fail("storage '", formats::printable(*key), "' is a ", known->second->type,
             ", which Lockstep does not read");
      }
      const std::uint64_t count = read_count();
      if (count > rest_.size() / size) {
        fail("storage '", formats::printable(*key), "' claims ", count,
             " elements, the file holds ", rest_.size(), " more bytes (truncated)");
      }
      if (!storages.emplace(known->first, rest_.first(count * size)).second) {
        fail("storage '", formats::printable(*key), "' is there twice");
      }
      rest_ = rest_.subspan(count * size);
    }
    if (!rest_.empty()) fail(rest_.size(), " bytes follow the last storage");
    return storages;
  }

  std::uint64_t read_count() {
    if (rest_.size() < kCountBytes) fail("the file ends before a storage (truncated)");
    std::uint64_t count = 0;
    for (std::size_t i = kCountBytes; i-- > 0;) {
      count = count << 8 | std::to_integer<std::uint64_t>(rest_[i]);
    }
    rest_ = rest_.subspan(kCountBytes);
    return count;
  }

  std::span<const std::byte> rest_;
  std::string_view name_;
};

}  // namespace

bool is_legacy(std::span<const std::byte> bytes) {
  return bytes.size() >= kMagic.size() &&
         std::equal(kMagic.begin(), kMagic.end(), bytes.begin(),
                    [](unsigned char a, std::byte b) { return std::byte{a} == b; });
}

TorchFile parse_legacy(std::span<const std::byte> bytes, std::string_view name) {
  return LegacyReader(bytes, name).read();
}

}  // namespace lockstep::torch_file
