// Where a graph can be cut into stages, and the graphs of the stages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/program/graph/exported_graph.h>

namespace lockstep::program {

/// The bytes of the tensor `name` when the model was exported: 0 if they are unknown, and the
/// largest number if they do not fit.
std::int64_t bytes_of(const Graph& graph, const std::string& name);

/// The name of an argument that `program` writes to after its last node, which no stage could do
/// for the caller; null if there is none. Such a program cannot be cut.
const std::string* changed_argument(const ExportedGraph& program);

/// The place before a node of a graph, where a stage may begin.
struct Cut {
  /// Why no stage may begin here; empty if one may. Numbers that depend on values cannot be sent to
  /// another stage, and a tensor that is changed in place must stay where it was made.
  std::string obstacle{};
  std::vector<std::string> crossing{};  ///< tensors that are made before and used after the cut
  std::int64_t bytes = 0;               ///< their sizes when the model was exported
};

/// One for each node of `program`, and one for the end. Those of the first node and the end have an
/// obstacle; all have one if there is a changed_argument().
std::vector<Cut> cuts_of(const ExportedGraph& program);

/// The stages between `begins`, the indices of the first nodes of all stages but the first, in
/// ascending order. A stage takes the crossing tensors of its first cut, and returns those of the
/// next one; the first takes the arguments of `program`, and the last returns its results. Sizes
/// are computed anew in each stage.
std::vector<ExportedGraph> stages_of(const ExportedGraph& program, const std::vector<Cut>& cuts,
                                     const std::vector<std::size_t>& begins);

}  // namespace lockstep::program
