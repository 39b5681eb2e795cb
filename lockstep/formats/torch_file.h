// The .pt and .pth files of Python's torch.save. They are read without executing anything, and
// written for torch.load(weights_only=True), also with mmap=True.
//
//   const MappedFile file("resnet18.pth");
//   const TorchFile content = parse_torch_file(file.bytes(), "resnet18.pth");
//   for (const auto& [name, tensor] : content.tensors) ...   // "layer1.0.conv1.weight", ...
//
// Format: torch/serialization.py of PyTorch 2.13. A zip archive of stored entries: NAME/data.pkl, a
// pickle (pickle.h) that refers to storages by their keys; NAME/data/KEY, the bytes of each
// storage; NAME/version, NAME/byteorder, and others that do not affect the content. Files from
// before PyTorch 1.6, in which the pickle and the storages follow each other, can also be read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/core/export.h>
#include <lockstep/formats/pickle.h>

namespace lockstep {

/// A tensor over memory that it does not own. The element with the indices i lies in `storage` at
/// offset + sum(i * strides). All elements lie within the storage.
struct LOCKSTEP_API TorchTensor {
  std::string dtype{};  ///< a type of safetensors.h: "F32", "BF16", "I64", "BOOL", ...
  std::vector<std::int64_t> shape{};
  std::vector<std::int64_t> strides{};  ///< in elements; 0 for an expanded dimension
  std::int64_t offset = 0;              ///< in elements
  /// Tensors that share memory (tied weights, slices) have the same storage. It is aligned in files
  /// of torch.save, but not necessarily in files that another program packed.
  std::span<const std::byte> storage{};
};

/// Tensors and their names, in order.
using TorchTensors = std::vector<std::pair<std::string, TorchTensor>>;

/// A tensor may have more elements than its storage, because an expanded dimension has stride 0.
/// When written out, as by contiguous(), all such tensors of a file together may take at most
/// kExpandedBytesOfAnyFile additional bytes, plus kExpandedBytesPerByte for each byte of their
/// storages. Without this limit, a file of a few bytes could request any amount of memory.
inline constexpr std::uint64_t kExpandedBytesOfAnyFile = std::uint64_t{64} << 20;
inline constexpr std::uint64_t kExpandedBytesPerByte = 64;

struct LOCKSTEP_API TorchFile {
  /// The value that torch.load would return. Its tensors are in `tensors`, with their memory.
  PickleRef content{};
  /// Every tensor in `content`. Its name consists of the keys and indices that lead to it, joined
  /// by '.': "conv1.weight" of a state dict, "model.conv1.weight" of {"model": state_dict, "epoch":
  /// 3}, "" if the file is one tensor.
  TorchTensors tensors{};
  /// All entries were verified against their CRC-32. Files from before PyTorch 1.6, and files
  /// written under torch.serialization.set_crc32_options(False), have none.
  bool has_checksums = false;
};

/// Whether `bytes` begins like a file of torch.save.
LOCKSTEP_API bool is_torch_file(std::span<const std::byte> bytes);

/// Returns the content of `bytes`, as views that live as long as `bytes`. Throws a CheckpointError
/// that begins with `name` if the file is truncated or damaged, is big-endian or is a TorchScript
/// archive; if its pickle names anything that does not belong to weights (pickle.h); if a tensor
/// reaches beyond its storage, is complex, quantized or sparse, or has the name of another one; or
/// if tensors repeat their elements more often than the limits above allow. Memory is proportional
/// to the size of the pickle, without the tensors.
LOCKSTEP_API TorchFile parse_torch_file(std::span<const std::byte> bytes, std::string_view name);

/// Returns the content of a file that torch.load reads as an OrderedDict of `tensors`, in their
/// order. Each storage is written once and completely. Throws a CheckpointError if two tensors have
/// the same name or view the same storage as different types, a name is not UTF-8, or a tensor
/// violates the conditions of TorchTensor or exceeds the limits above.
LOCKSTEP_API std::string serialize_torch_file(const TorchTensors& tensors);

/// Like serialize_torch_file(), but writes the content to `path` atomically, without a copy in
/// memory: readers see the old file or the new one. Throws a DataError if the file cannot be
/// written.
LOCKSTEP_API void write_torch_file(const std::filesystem::path& path, const TorchTensors& tensors);

}  // namespace lockstep
