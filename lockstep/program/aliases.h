// Which values of a graph may share memory.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <map>
#include <string>

namespace lockstep::program {

/// Whether an operator may return an input, or a view of one, although its schema does not say so;
/// true in doubt. An operator that is composed of others returns what these return: dropout() its
/// input in evaluation mode, type_as() if the types are equal, einsum() of one operand a view.
bool may_return_input(const c10::OperatorHandle& operation);

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
