#include <lockstep/formats/torch_file/types.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <set>
#include <utility>

#include <lockstep/core/strings.h>
#include <lockstep/formats/printable.h>
#include <lockstep/formats/safetensors.h>

namespace lockstep::torch_file {
namespace {

constexpr std::array<TensorType, 15> kTensorTypes{{
    {"F32", "FloatStorage", "float32"},
    {"F64", "DoubleStorage", "float64"},
    {"F16", "HalfStorage", "float16"},
    {"BF16", "BFloat16Storage", "bfloat16"},
    {"I64", "LongStorage", "int64"},
    {"I32", "IntStorage", "int32"},
    {"I16", "ShortStorage", "int16"},
    {"I8", "CharStorage", "int8"},
    {"U8", "ByteStorage", "uint8"},
    {"BOOL", "BoolStorage", "bool"},
    {"U16", "", "uint16"},
    {"U32", "", "uint32"},
    {"U64", "", "uint64"},
    {"F8_E5M2", "", "float8_e5m2"},
    {"F8_E4M3", "", "float8_e4m3fn"},
}};

const TensorType* type_where(std::string_view TensorType::* field, std::string_view value) {
  const auto* found = std::find_if(kTensorTypes.begin(), kTensorTypes.end(),
                                   [&](const TensorType& type) { return type.*field == value; });
  return value.empty() || found == kTensorTypes.end() ? nullptr : found;
}

}  // namespace

const TensorType* type_of_dtype(std::string_view dtype) {
  return type_where(&TensorType::dtype, dtype);
}
const TensorType* type_of_storage(std::string_view storage) {
  return type_where(&TensorType::storage, storage);
}
const TensorType* type_of_name(std::string_view name) {
  return type_where(&TensorType::name, name);
}

std::string wrong_geometry(const TorchTensor& tensor) {
  if (tensor.shape.size() != tensor.strides.size()) {
    return str("has ", tensor.shape.size(), " sizes and ", tensor.strides.size(), " strides");
  }
  const auto elements =
      static_cast<std::int64_t>(tensor.storage.size() / safetensors_element_bytes(tensor.dtype));
  if (tensor.offset < 0) return str("begins at element ", tensor.offset);
  std::int64_t count = 1;
  std::int64_t last = tensor.offset;
  bool overflow = false;
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    const std::int64_t side = tensor.shape[i];
    const std::int64_t stride = tensor.strides[i];
    if (side < 0 || stride < 0) return "has a size or stride below 0";
    std::int64_t reach = 0;
    overflow |= __builtin_mul_overflow(count, side, &count);
    overflow |= __builtin_mul_overflow(std::max<std::int64_t>(side, 1) - 1, stride, &reach);
    overflow |= __builtin_add_overflow(last, reach, &last);
  }
  const bool empty = std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end();
  if (overflow || (!empty && last >= elements)) {
    return str("reaches element ", overflow ? "beyond all memory" : str(last), " of a storage of ",
               amount_of(elements, "element"));
  }
  return "";
}

std::string wrong_expansion(const TorchTensors& tensors) {
  std::set<std::pair<const std::byte*, std::size_t>> storages;
  std::uint64_t most = kExpandedBytesOfAnyFile;
  for (const auto& [name, tensor] : tensors) {
    if (storages.emplace(tensor.storage.data(), tensor.storage.size()).second) {
      most += kExpandedBytesPerByte * tensor.storage.size();
    }
  }
  std::uint64_t left = most;
  for (const auto& [name, tensor] : tensors) {
    const std::uint64_t size = safetensors_element_bytes(tensor.dtype);
    const std::uint64_t stored = tensor.storage.size() / size;
    std::uint64_t count = 1;
    for (const std::int64_t side : tensor.shape) count *= static_cast<std::uint64_t>(side);
    if (count <= stored) continue;
    if (count - stored > left / size) {
      return str("tensor '", formats::printable(name), "' has ", count,
                 " elements over a storage of ", stored,
                 ": tensors that repeat their elements may take at most ", most,
                 " bytes more than their storages");
    }
    left -= (count - stored) * size;
  }
  return "";
}

}  // namespace lockstep::torch_file
