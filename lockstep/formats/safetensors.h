// safetensors: named tensors in one file that carries no code.
//
// Format (https://github.com/huggingface/safetensors), little-endian: the length of the header as a
// u64, the header as JSON
//
//   {"name": {"dtype", "shape", "data_offsets": [begin, end]}, "__metadata__": {...}}
//
// and the bytes of the tensors, row-major and without holes.
//
// Files that Lockstep writes carry checksums in "__metadata__", which other readers treat as text:
//
//   "lockstep.xxh3_64:NAME"  of the bytes of tensor NAME
//   "lockstep.xxh3_64"       of the header's JSON without this entry, with sorted keys, without
//                            blanks, and with only those characters escaped that must be
//
// Each is written as the 16 hexadecimal digits of XXH3 (checksum.h). The checksums stay valid if
// another program reads such a file and writes the same tensors and metadata again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/core/export.h>

namespace lockstep {

/// A tensor's type ("F32", "BF16", "I64", "BOOL", ...), shape, and bytes, which it does not own.
struct LOCKSTEP_API TensorView {
  std::string dtype{};
  std::vector<std::int64_t> shape{};
  std::span<const std::byte> bytes{};
};

using TensorViews = std::map<std::string, TensorView>;
using SafetensorsMetadata = std::map<std::string, std::string>;

struct LOCKSTEP_API Safetensors {
  TensorViews tensors{};           ///< in the order of their names
  SafetensorsMetadata metadata{};  ///< without the checksums
  /// All contents of the file were verified against checksums. Files of other programs have none.
  bool has_checksums = false;
};

/// Bytes of one element of `dtype`; 0 if safetensors has no such type.
LOCKSTEP_API std::size_t safetensors_element_bytes(std::string_view dtype);

/// The tensors in `bytes`, as views that live as long as `bytes`. Throws a CheckpointError that
/// begins with `name` if the header is not the JSON above, repeats a key or names an unknown type;
/// if offsets overlap, leave holes, or do not end at the end of the file; if a size contradicts a
/// shape; or if a checksum does not match. A file with checksums is read completely.
LOCKSTEP_API Safetensors parse_safetensors(std::span<const std::byte> bytes, std::string_view name);

/// Returns the file's content, with checksums. Throws a CheckpointError if a view's bytes
/// contradict its type and shape, a tensor is called "__metadata__", a key of `metadata` is that of
/// a checksum, or the header becomes larger than readers allow. Tensors are ordered by descending
/// element size, then name, as in the reference implementation, so that all are aligned.
LOCKSTEP_API std::string serialize_safetensors(const TensorViews& tensors,
                                               const SafetensorsMetadata& metadata = {});

/// The result of serialize_safetensors() in pieces, without a copy of the tensors.
struct LOCKSTEP_API SafetensorsPieces {
  std::string head{};                              ///< the length of the header and the header
  std::vector<std::span<const std::byte>> data{};  ///< the views' bytes, in file order
};
LOCKSTEP_API SafetensorsPieces safetensors_pieces(const TensorViews& tensors,
                                                  const SafetensorsMetadata& metadata = {});

/// Writes the result of serialize_safetensors() atomically: readers see the old file or the new
/// one. Throws a DataError if the file cannot be written.
LOCKSTEP_API void write_safetensors(const std::filesystem::path& path, const TensorViews& tensors,
                                    const SafetensorsMetadata& metadata = {});

}  // namespace lockstep
