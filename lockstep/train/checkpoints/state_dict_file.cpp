#include <lockstep/train/checkpoints/state_dict_file.h>

#include <cstring>
#include <map>
#include <span>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/core/log.h>
#include <lockstep/formats/safetensors.h>
#include <lockstep/formats/torch_file.h>
#include <lockstep/train/checkpoints/tensor_types.h>

namespace lockstep {
namespace {

using StorageKey = std::pair<const void*, std::size_t>;

// Copies the bytes to new memory, which LibTorch's allocator aligns.
torch::Tensor copied_bytes(std::span<const std::byte> bytes) {
  torch::Tensor copy = torch::empty({static_cast<std::int64_t>(bytes.size())}, torch::kUInt8);
  if (!bytes.empty()) std::memcpy(copy.mutable_data_ptr(), bytes.data(), bytes.size());
  return copy;
}

torch::Tensor view_of(const torch::Tensor& memory, const std::string& dtype, std::int64_t offset,
                      const std::vector<std::int64_t>& shape,
                      const std::vector<std::int64_t>& strides) {
  // Both parsers support only types that scalar_type_of() knows.
  torch::Tensor tensor = torch::empty({0}, train::scalar_type_of(dtype).value());
  return tensor.set_(memory.storage(), offset, shape, strides);
}

StateDict state_of(const TorchTensors& tensors) {
  std::map<StorageKey, torch::Tensor> memory;
  StateDict state;
  for (const auto& [name, tensor] : tensors) {
    torch::Tensor& bytes = memory[{tensor.storage.data(), tensor.storage.size()}];
    if (!bytes.defined()) bytes = copied_bytes(tensor.storage);
    state.emplace_back(name,
                       view_of(bytes, tensor.dtype, tensor.offset, tensor.shape, tensor.strides));
  }
  return state;
}

StateDict state_of(const TensorViews& tensors) {
  StateDict state;
  for (const auto& [name, view] : tensors) {
    torch::Tensor tensor = torch::empty(view.shape, train::scalar_type_of(view.dtype).value());
    if (!view.bytes.empty())
      std::memcpy(tensor.mutable_data_ptr(), view.bytes.data(), view.bytes.size());
    state.emplace_back(name, std::move(tensor));
  }
  return state;
}

void keep_those_with_prefix(StateDict& state, const std::string& prefix, const std::string& path) {
  if (prefix.empty()) return;
  const std::string first = state.empty() ? "no tensor" : "'" + state.front().first + "'";
  std::erase_if(state, [&](const auto& entry) { return !entry.first.starts_with(prefix); });
  if (state.empty()) {
    throw CheckpointError(lockstep::str(path, ": no name of a tensor begins with '", prefix,
                                        "'; the file begins with ", first));
  }
  for (auto& [name, tensor] : state) name.erase(0, prefix.size());
}

void check_can_be_saved(const std::string& name, const torch::Tensor& tensor) {
  const auto fail = [&](const auto&... values) {
    throw CheckpointError(lockstep::str("cannot save tensor '", name, "': it is ", values...));
  };
  if (!tensor.defined()) fail("undefined");
  if (tensor.layout() != torch::kStrided || tensor.is_quantized() || tensor.is_meta()) {
    fail(tensor.toString(), ", expected a dense tensor with values");
  }
  if (train::dtype_of(tensor.scalar_type()).empty() || tensor.is_complex()) {
    fail("of type ", c10::toString(tensor.scalar_type()), ", which Lockstep's .pt files lack");
  }
}

// The whole storage of `tensor` as a flat tensor on the CPU; not copied if it is already there.
torch::Tensor whole_storage(const torch::Tensor& tensor) {
  return torch::empty({0}, tensor.options()).set_(tensor.storage()).cpu();
}

TorchTensor file_tensor(const torch::Tensor& tensor, const torch::Tensor& memory) {
  return {.dtype = std::string(train::dtype_of(tensor.scalar_type())),
          .shape = tensor.sizes().vec(),
          .strides = tensor.strides().vec(),
          .offset = tensor.storage_offset(),
          .storage = {static_cast<const std::byte*>(memory.const_data_ptr()), memory.nbytes()}};
}

}  // namespace

StateDict load_state_dict_file(const std::filesystem::path& path, const std::string& prefix) {
  const MappedFile file(path);
  StateDict state;
  bool has_checksums = false;
  if (is_torch_file(file.bytes())) {
    const TorchFile content = parse_torch_file(file.bytes(), path.string());
    has_checksums = content.has_checksums;
    state = state_of(content.tensors);
  } else {
    const Safetensors content = parse_safetensors(file.bytes(), path.string());
    has_checksums = content.has_checksums;
    state = state_of(content.tensors);
  }
  keep_those_with_prefix(state, prefix, path.string());
  if (!has_checksums) {
    log_warning(path.string(), " has no checksums, so damage to it would go unnoticed");
  }
  return state;
}

void save_torch_file(const std::filesystem::path& path, const StateDict& state) {
  std::map<const void*, int> users;  // number of tensors per storage
  for (const auto& [name, tensor] : state) {
    check_can_be_saved(name, tensor);
    ++users[tensor.storage().unsafeGetStorageImpl()];
  }
  const torch::NoGradGuard no_grad;
  std::map<const void*, torch::Tensor> shared;
  std::vector<torch::Tensor> kept;
  TorchTensors tensors;
  for (const auto& [name, tensor] : state) {
    torch::Tensor values = tensor.detach().resolve_neg();
    const void* storage = values.storage().unsafeGetStorageImpl();
    torch::Tensor& memory = shared[storage];
    if (!memory.defined()) {
      // A view that is the only user of its storage is saved without the rest of the storage.
      if (users[storage] < 2 && values.storage().nbytes() != values.nbytes()) {
        values = values.clone(torch::MemoryFormat::Contiguous);
      }
      memory = whole_storage(values);
    }
    kept.push_back(values);  // keeps its memory from being reused for another tensor
    tensors.emplace_back(name, file_tensor(values, memory));
  }
  try {
    write_torch_file(path, tensors);
  } catch (const DataError& error) {
    throw CheckpointError(lockstep::str("cannot write the tensors: ", error.what()));
  }
}

}  // namespace lockstep
