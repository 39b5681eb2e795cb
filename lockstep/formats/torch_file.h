// The .pt and .pth files of Python's torch.save: read without running anything, and written so that
// torch.load(weights_only=True) reads them, with mmap=True as well.
//
//   const MappedFile file("resnet18.pth");
//   const TorchFile content = parse_torch_file(file.bytes(), "resnet18.pth");
//   for (const auto& [name, tensor] : content.tensors) ...   // "layer1.0.conv1.weight", ...
//
// Format: torch/serialization.py of PyTorch 2.13. A zip archive of stored entries: NAME/data.pkl, a
// pickle (pickle.h) that refers to storages by their keys; NAME/data/KEY, the bytes of each
// storage; NAME/version, NAME/byteorder, and others that do not concern the content. Before
// PyTorch 1.6 the pickle and the storages stood in the file one after the other, which is read as
// well.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/formats/pickle.h>

namespace lockstep {

/// A tensor over memory that somebody else owns. The element with the indices i lies in `storage`
/// at offset + sum(i * strides). All that its shape and strides reach is within the storage.
struct TorchTensor {
  std::string dtype{};  ///< a type of safetensors.h: "F32", "BF16", "I64", "BOOL", ...
  std::vector<std::int64_t> shape{};
  std::vector<std::int64_t> strides{};  ///< in elements; 0 where a dimension is expanded
  std::int64_t offset = 0;              ///< in elements
  /// Tensors that share memory (tied weights, slices) have the same storage. It is aligned in a
  /// file of torch.save, and may not be in one that another program packed.
  std::span<const std::byte> storage{};
};

/// Tensors and their names, in order.
using TorchTensors = std::vector<std::pair<std::string, TorchTensor>>;

/// A tensor may have more elements than its storage: a dimension that is expanded has stride 0.
/// Written out, as by contiguous(), all such tensors of a file may together take
/// kExpandedBytesOfAnyFile bytes, and kExpandedBytesPerByte for each byte of their storages, more
/// than the storages themselves. A file of a few bytes could ask for any amount of memory
/// otherwise.
inline constexpr std::uint64_t kExpandedBytesOfAnyFile = std::uint64_t{64} << 20;
inline constexpr std::uint64_t kExpandedBytesPerByte = 64;

struct TorchFile {
  /// What torch.load would return. Its tensors are in `tensors`, with their memory.
  PickleRef content{};
  /// Every tensor in `content` under the keys and indices that lead to it, with '.' between them:
  /// "conv1.weight" of a state dict, "model.conv1.weight" of {"model": state_dict, "epoch": 3}, ""
  /// where the file is one tensor.
  TorchTensors tensors{};
  /// All entries were compared with their CRC-32. A file before PyTorch 1.6 has none, nor has one
  /// written under torch.serialization.set_crc32_options(False).
  bool has_checksums = false;
};

/// Whether `bytes` begins like a file of torch.save.
bool is_torch_file(std::span<const std::byte> bytes);

/// The content of `bytes`, as views that live as long as they do. CheckpointError, beginning with
/// `name`, when the file is truncated or damaged; when its pickle names anything that does not
/// belong to weights (pickle.h); when a tensor reaches beyond its storage, is complex, quantized or
/// sparse, or has a name that another one has; when tensors repeat their elements more often than
/// the limits above allow; for big-endian files and TorchScript archives. Memory is proportional to
/// the size of the pickle, without the tensors.
TorchFile parse_torch_file(std::span<const std::byte> bytes, std::string_view name);

/// The content of a file in which torch.load finds an OrderedDict of `tensors`, in their order.
/// Each storage is written once, whole. CheckpointError when two tensors have one name or view the
/// same storage as different types, when a name is not UTF-8, or when a tensor contradicts what
/// TorchTensor says or exceeds the limits above.
std::string serialize_torch_file(const TorchTensors& tensors);

/// Writes such a file to `path` without a copy in memory, so that readers see the old file or the
/// new one. DataError when the file cannot be written.
void write_torch_file(const std::filesystem::path& path, const TorchTensors& tensors);

}  // namespace lockstep
