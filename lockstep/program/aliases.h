// Which values of a graph may share memory.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <map>
#include <optional>
#include <string>

#include <lockstep/program/exported_graph.h>

namespace lockstep::program {

/// Returns LibTorch's operator "torch.ops.aten.add_.Tensor". Nothing if LibTorch has none of this
/// name, as for higher-order operators and functions of Python.
std::optional<c10::OperatorHandle> find_operator(const std::string& target);

/// Whether `node` may return its input itself, although the operator's schema does not say so.
bool may_return_input(const Node& node);

/// Sets of values that may share memory.
class AliasSets {
 public:
  /// Returns the value that stands for the set of `name`.
  const std::string& root(const std::string& name);
  void unite(const std::string& a, const std::string& b);

 private:
  std::map<std::string, std::string> parents_;
};

}  // namespace lockstep::program
