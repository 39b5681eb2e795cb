// The modules of a Program, under the names that they have in Python.
#pragma once

#include <torch/nn/module.h>

#include <string_view>

#include <lockstep/program/graph/exported_graph.h>

namespace lockstep::program {

/// Makes modules below `root`, which have the names of their Python classes but no forward().
class ModuleTree {
 public:
  ModuleTree(torch::nn::Module& root, const Graph& graph) : root_(root), graph_(graph) {}

  /// The module of this path, which is made if it does not exist.
  torch::nn::Module& at(std::string_view path);

  /// Registers a parameter or buffer, unless its name is registered: the graph may have several
  /// inputs for a tensor that Python uses under several names.
  void add(const InputSpec& input, const torch::Tensor& tensor);

 private:
  torch::nn::Module& root_;
  const Graph& graph_;
};

/// Gives each module in `to` the mode of the module of the same path in `from`, if there is one.
void copy_modes(const torch::nn::Module& from, torch::nn::Module& to);

}  // namespace lockstep::program
