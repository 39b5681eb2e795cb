#include <lockstep/formats/torch_file/collected_tensors.h>

#include <set>

#include <lockstep/core/error.h>
#include <lockstep/formats/printable.h>
#include <lockstep/formats/safetensors.h>
#include <lockstep/formats/torch_file/types.h>

namespace lockstep::torch_file {
namespace {

// Keys may be shared and long: a small file must not request gigabytes of names.
constexpr std::size_t kMaximumNamesPerByte = 64;
constexpr std::string_view kUntyped = "UntypedStorage";

class TensorCollector {
 public:
  TensorCollector(std::size_t pickle_bytes, std::string_view name)
      : most_name_bytes_(kMaximumNamesPerByte * pickle_bytes), name_(name) {}

  // Recursive: both a pickle's depth and its size when written out are bounded.
  void visit(const PickleValue& value, const std::string& path) {
    if (const auto* dict = std::get_if<PickleDict>(&value.content)) {
      for (const auto& [key, item] : dict->items) {
        if (leads_on(*item)) visit_item(*item, path, key_text(*key));
      }
    } else if (const auto* list = std::get_if<PickleList>(&value.content)) {
      visit_items(list->items, path);
    } else if (const auto* tuple = std::get_if<PickleTuple>(&value.content)) {
      visit_items(tuple->items, path);
    } else if (const auto* tensor = std::get_if<PickleTensor>(&value.content)) {
      add_storage(*tensor->storage);
      if (!names_.insert(path).second)
        fail("two tensors are called '", formats::printable(path), "'");
      result_.tensors.emplace_back(path, tensor);
    } else if (const auto* storage = std::get_if<PickleStorage>(&value.content)) {
      add_storage(*storage);
    }
  }

  CollectedTensors take() { return std::move(result_); }

 private:
  template <class... Values>
  [[noreturn]] void fail(const Values&... values) const {
    throw CheckpointError(str(name_, ": ", values...));
  }

  // Keys other than texts and numbers have values that are not weights, or share a name.
  static std::string key_text(const PickleValue& key) {
    if (const auto* text = std::get_if<std::string>(&key.content)) return *text;
    if (const auto* number = std::get_if<std::int64_t>(&key.content)) return str(*number);
    return "?";
  }

  void visit_items(const std::vector<PickleRef>& items, const std::string& path) {
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (leads_on(*items[i])) visit_item(*items[i], path, str(i));
    }
  }

  void visit_item(const PickleValue& value, const std::string& path, const std::string& key) {
    const std::string item_path = path.empty() ? key : path + '.' + key;
    name_bytes_ += item_path.size();
    if (name_bytes_ > most_name_bytes_) {
      fail("the names of tensors are longer than ", kMaximumNamesPerByte, " times the pickle");
    }
    visit(value, item_path);
  }

  static bool leads_on(const PickleValue& value) {
    return std::holds_alternative<PickleDict>(value.content) ||
           std::holds_alternative<PickleList>(value.content) ||
           std::holds_alternative<PickleTuple>(value.content) ||
           std::holds_alternative<PickleTensor>(value.content) ||
           std::holds_alternative<PickleStorage>(value.content);
  }

  void add_storage(const PickleStorage& storage) {
    const auto [known, is_new] = result_.storages.emplace(storage.key, &storage);
    if (is_new ||
        (known->second->type == storage.type && known->second->elements == storage.elements)) {
      return;
    }
    fail("storage '", formats::printable(storage.key), "' is a ", known->second->type, " of ",
         amount_of(known->second->elements, "element"), " and a ", storage.type, " of ",
         amount_of(storage.elements, "element"));
  }

  std::size_t most_name_bytes_;
  std::string_view name_;
  std::size_t name_bytes_ = 0;
  std::set<std::string> names_;
  CollectedTensors result_;
};

}  // namespace

CollectedTensors collect_tensors(const Pickle& pickle, std::string_view name) {
  TensorCollector collector(pickle.bytes, name);
  collector.visit(*pickle.value, "");
  return collector.take();
}

std::size_t element_bytes(const PickleStorage& storage) {
  if (storage.type == kUntyped) return 1;
  const TensorType* type = type_of_storage(storage.type);
  return type == nullptr ? 0 : safetensors_element_bytes(type->dtype);
}

TorchTensors tensors_over(const CollectedTensors& collected, const StorageBytes& bytes,
                          std::string_view name) {
  const auto fail = [&](const auto&... values) {
    throw CheckpointError(str(name, ": ", values...));
  };
  for (const auto& [key, storage] : collected.storages) {
    const std::size_t size = element_bytes(*storage);
    if (size == 0) {
      fail("storage '", formats::printable(key), "' is a ", storage->type,
           ", which Lockstep does not read");
    }
    const auto found = bytes.find(key);
    if (found == bytes.end()) fail("storage '", formats::printable(key), "' is not in the file");
    const std::size_t got = found->second.size();
    if (got % size != 0 || got / size != static_cast<std::size_t>(storage->elements)) {
      fail("storage '", formats::printable(key), "' has ", got, " bytes, the pickle says ",
           amount_of(storage->elements, "element"), " of ", size);
    }
  }
  TorchTensors tensors;
  for (const auto& [path, tensor] : collected.tensors) {
    const bool untyped = tensor->storage->type == kUntyped;
    const TensorType* type =
        untyped ? type_of_name(tensor->dtype) : type_of_storage(tensor->storage->type);
    if (type == nullptr || untyped == tensor->dtype.empty()) {
      fail("tensor '", formats::printable(path), "' is of type ",
           tensor->dtype.empty() ? "none" : tensor->dtype, " over a ", tensor->storage->type,
           ", which Lockstep does not read");
    }
    TorchTensor view{.dtype = std::string(type->dtype),
                     .shape = tensor->shape,
                     .strides = tensor->strides,
                     .offset = tensor->offset,
                     .storage = bytes.find(tensor->storage->key)->second};
    const std::string wrong = wrong_geometry(view);
    if (!wrong.empty()) fail("tensor '", formats::printable(path), "' ", wrong);
    tensors.emplace_back(path, std::move(view));
  }
  const std::string wrong = wrong_expansion(tensors);
  if (!wrong.empty()) fail(wrong);
  return tensors;
}

}  // namespace lockstep::torch_file
