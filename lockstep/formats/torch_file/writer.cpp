#include <functional>
#include <map>
#include <set>
#include <utility>

#include <lockstep/core/atomic_file.h>
#include <lockstep/core/encoding/pickle_writer.h>
#include <lockstep/core/encoding/utf8.h>
#include <lockstep/core/error.h>
#include <lockstep/formats/printable.h>
#include <lockstep/formats/safetensors.h>
#include <lockstep/formats/torch_file.h>
#include <lockstep/formats/torch_file/types.h>
#include <lockstep/formats/torch_file/zip_archive.h>

namespace lockstep {
namespace torch_file {
namespace {

constexpr std::string_view kRoot = "archive";  // as torch.save calls it in a buffer
constexpr std::size_t kMaximumTensorNameBytes =
    100'000;  // far beyond any real tensor, and below pickle's limit

// The storages of tensors and their keys in the file, in the order of the tensors.
class StorageKeys {
 public:
  // The key of the storage of `tensor`; tensors that view one storage with the same type share it.
  std::string key_of(const std::string& name, const TorchTensor& tensor, const TensorType& type) {
    const std::size_t next = storages_.size();
    if (!tensor.storage.empty()) {
      const auto [known, is_new] = known_.emplace(
          std::pair(tensor.storage.data(), tensor.storage.size()), Known{next, &type, name});
      if (!is_new) {
        if (known->second.type->storage == type.storage) return str(known->second.key);
        throw CheckpointError(
            str("cannot write tensor '", formats::printable(name), "' of type ", type.dtype,
                ": it shares its memory with '", formats::printable(known->second.tensor),
                "' of type ", known->second.type->dtype,
                ", which torch.save and torch.load do not support; copy one of them"));
      }
    }
    storages_.push_back(tensor.storage);
    return str(next);
  }

  const std::vector<std::span<const std::byte>>& storages() const { return storages_; }

 private:
  struct Known {
    std::size_t key = 0;
    const TensorType* type = nullptr;
    std::string tensor{};
  };
  std::map<std::pair<const std::byte*, std::size_t>, Known> known_;
  std::vector<std::span<const std::byte>> storages_;
};

const TensorType& checked_type(const std::string& name, const TorchTensor& tensor) {
  const auto fail = [&](const auto&... values) {
    throw CheckpointError(
        str("cannot write tensor '", formats::printable(name), "': it ", values...));
  };
  if (name.size() > kMaximumTensorNameBytes || !is_utf8(name)) {
    fail("has a name that is not UTF-8 of at most ", kMaximumTensorNameBytes, " bytes");
  }
  const TensorType* type = type_of_dtype(tensor.dtype);
  if (type == nullptr)
    fail("has the type '", formats::printable(tensor.dtype), "', which .pt files lack");
  if (tensor.storage.size() % safetensors_element_bytes(tensor.dtype) != 0) {
    fail("has a storage of ", tensor.storage.size(),
         " bytes, which is not a whole number of elements");
  }
  const std::string wrong = wrong_geometry(tensor);
  if (!wrong.empty()) fail(wrong);
  return *type;
}

void write_numbers(PickleWriter& pickle, const std::vector<std::int64_t>& numbers) {
  pickle.begin_tuple();
  for (const std::int64_t number : numbers) pickle.integer(number);
  pickle.end_tuple();
}

// Follows the description by Tensor.__reduce_ex__() of torch/_tensor.py.
void write_tensor(PickleWriter& pickle, const TorchTensor& tensor, const TensorType& type,
                  const std::string& key) {
  const bool untyped = type.storage.empty();
  const std::size_t element = untyped ? 1 : safetensors_element_bytes(type.dtype);
  pickle.global("torch._utils", untyped ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
  pickle.begin_tuple();
  pickle.begin_tuple();
  pickle.text("storage");
  if (untyped) {
    pickle.global("torch.storage", "UntypedStorage");
  } else {
    pickle.global("torch", type.storage);
  }
  pickle.text(key);
  pickle.text("cpu");
  pickle.integer(static_cast<std::int64_t>(tensor.storage.size() / element));
  pickle.end_tuple();
  pickle.persistent_id();
  pickle.integer(tensor.offset);
  write_numbers(pickle, tensor.shape);
  write_numbers(pickle, tensor.strides);
  pickle.boolean(false);  // requires_grad
  pickle.ordered_dict();  // hooks
  if (untyped) pickle.global("torch", type.name);
  pickle.end_tuple();
  pickle.call();
}

void check_expansion(const TorchTensors& tensors) {
  const std::string wrong = wrong_expansion(tensors);
  if (!wrong.empty()) throw CheckpointError("cannot write the tensors: " + wrong);
}

std::string write_state(const TorchTensors& tensors, StorageKeys& keys) {
  std::set<std::string_view> names;
  PickleWriter pickle;
  pickle.ordered_dict();
  pickle.begin_items();
  for (const auto& [name, tensor] : tensors) {
    const TensorType& type = checked_type(name, tensor);
    if (!names.insert(name).second) {
      throw CheckpointError(
          str("cannot write two tensors called '", formats::printable(name), "'"));
    }
    pickle.text(name);
    write_tensor(pickle, tensor, type, keys.key_of(name, tensor, type));
  }
  pickle.end_items();
  check_expansion(tensors);
  return pickle.finish();
}

void write_archive(const TorchTensors& tensors,
                   const std::function<void(std::string_view)>& write) {
  StorageKeys keys;
  const std::string pickle = write_state(tensors, keys);
  const auto path = [](const auto&... parts) { return str(kRoot, '/', parts...); };
  ZipWriter zip(write);
  zip.add(path("data.pkl"), pickle);
  // Without ".format_version", which would promise that contents lie where PyTorch's own writer
  // puts them: a reader may then compute their positions instead of looking them up.
  zip.add(path("byteorder"), "little");
  for (std::size_t i = 0; i < keys.storages().size(); ++i) {
    zip.add(path("data/", i), keys.storages()[i]);
  }
  zip.add(path("version"), "3\n");
  zip.finish();
}

}  // namespace
}  // namespace torch_file

std::string serialize_torch_file(const TorchTensors& tensors) {
  std::string content;
  torch_file::write_archive(tensors, [&](std::string_view piece) { content += piece; });
  return content;
}

void write_torch_file(const std::filesystem::path& path, const TorchTensors& tensors) {
  AtomicFile file(path);
  std::uint64_t at = 0;
  torch_file::write_archive(tensors, [&](std::string_view piece) {
    file.write_at(at, piece);
    at += piece.size();
  });
  file.commit();
}

}  // namespace lockstep
