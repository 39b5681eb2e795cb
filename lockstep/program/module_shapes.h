// The output shapes of a program's modules, for summaries of models.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <unordered_map>
#include <vector>

#include <lockstep/program/graph/exported_graph.h>
#include <lockstep/program/plan.h>

namespace lockstep::program {

struct ModuleShapes {
  using Shapes = std::unordered_map<const torch::nn::Module*, std::vector<std::int64_t>>;

  /// The shapes of modules whose tensors that are used outside have one shape.
  Shapes outputs{};
  /// For other modules, the shape of their last operation.
  Shapes last_operations{};

  /// Adds the modules of `program`, whose graph has been run.
  void add(const torch::nn::Module& program, const Graph& graph, const NodeRecord& record);
};

/// While it lives, the programs that run on this thread add their modules to `shapes`.
class ModuleShapesScope {
 public:
  explicit ModuleShapesScope(ModuleShapes& shapes);
  ~ModuleShapesScope();
  ModuleShapesScope(const ModuleShapesScope&) = delete;
  ModuleShapesScope& operator=(const ModuleShapesScope&) = delete;

  /// Null outside a scope.
  static ModuleShapes* current();

 private:
  ModuleShapes* outer_;
};

}  // namespace lockstep::program
