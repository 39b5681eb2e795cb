// The .pt2 files of torch.export.save. Nothing in them is executed when they are read.
//
//   const MappedFile file("net.pt2");
//   const Pt2File content = parse_pt2_file(file.bytes(), "net.pt2");
//
// Format: torch/export/pt2_archive of PyTorch 2.8 and later, a zip archive of stored entries in one
// folder: models/model.json, the graph; data/weights/ and data/constants/, each with the bytes of
// the tensors and a JSON file that describes them. PyTorch 2.8 wrote files of torch.save there.
// PyTorch 2.7 wrote serialized_exported_program.json, serialized_state_dict.pt and
// serialized_constants.pt.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/program/graph/exported_graph.h>
#include <lockstep/program/graph/saturated.h>

namespace lockstep::program {

/// A tensor over memory of the file. The element with the indices i lies in `storage` at
/// offset + sum(i * strides), counted in elements. All elements lie within the storage.
struct LOCKSTEP_API StoredTensor {
  ScalarTypeCode dtype{};
  std::vector<std::int64_t> sizes{};
  std::vector<std::int64_t> strides{};
  std::int64_t offset = 0;
  bool requires_grad = false;
  bool is_parameter = false;  ///< unknown, and false, in files of PyTorch 2.7 and 2.8
  /// Tensors that share memory have the same storage.
  std::span<const std::byte> storage{};
};

/// The number of elements; the largest number if it does not fit.
inline std::int64_t elements_of(const StoredTensor& tensor) {
  std::int64_t count = 1;
  for (const std::int64_t size : tensor.sizes) count = saturated_product(count, size);
  return count;
}

struct LOCKSTEP_API Pt2File {
  ExportedGraph program{};
  /// Parameters and persistent buffers. All are inputs of the graph: those that the graph does not
  /// use, and that torch.export leaves out with strict=True, are added.
  std::map<std::string, StoredTensor> state{};
  std::map<std::string, StoredTensor> constants{};  ///< constants and other buffers
  bool has_checksums = false;                       ///< all entries were verified
};

/// The type that `code` means: its name in Python ("float32") and the bytes of an element.
struct LOCKSTEP_API ScalarTypeInfo {
  std::int64_t code = 0;
  const char* name = nullptr;
  std::size_t bytes = 0;
};
/// Returns null if the schema has no such type.
LOCKSTEP_API const ScalarTypeInfo* scalar_type_info(ScalarTypeCode code);

/// Returns the content of `bytes`, whose tensors are views that live as long as `bytes`. Throws a
/// CheckpointError that begins with `name` if the file is damaged, is not one of torch.export.save,
/// or names something that is not supported (read_graph.h); or if a tensor of the graph is missing
/// or reaches beyond its storage.
LOCKSTEP_API Pt2File parse_pt2_file(std::span<const std::byte> bytes, std::string_view name);

/// Returns the graph of `bytes` alone, without the state that it does not use. Neither reads the
/// tensors nor verifies checksums.
LOCKSTEP_API ExportedGraph parse_pt2_graph(std::span<const std::byte> bytes, std::string_view name);

}  // namespace lockstep::program
