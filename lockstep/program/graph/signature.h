// What an exported program takes and returns, read without LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/program/graph/exported_graph.h>

namespace lockstep::program {

/// A tensor among the arguments or results of a program.
struct TensorSignature {
  std::string name{};   ///< "x", "batch.image", "logits"; "0" for a value without a name
  std::string dtype{};  ///< Python's name: "float32"
  std::vector<std::optional<std::int64_t>> sizes{};  ///< absent: not fixed by the export
  /// Whether the graph uses it; true for results. torch.export gives arguments that were one tensor
  /// when the model was exported a single place in the graph, so that the others are unused.
  bool is_used = true;
};

/// "float32 [any, 3, 224, 224]"
std::string type_text(const TensorSignature& tensor);

struct ProgramSignature {
  std::vector<TensorSignature> inputs{};   ///< in the order of forward()
  std::vector<TensorSignature> outputs{};  ///< in the order of the results
};

/// The names of the values that forward() takes, fixed ones included: "x", "batch.image".
std::vector<std::string> leaf_names(const ExportedGraph& program);

ProgramSignature signature_of(const ExportedGraph& program);

/// Reads the graph of the file `path`, without its tensors. Throws DataError and CheckpointError,
/// like Program.
ProgramSignature read_signature(const std::filesystem::path& path);

}  // namespace lockstep::program
