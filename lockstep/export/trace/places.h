// Where in the user's module a recorded operation stands.
#pragma once

#include <string>
#include <unordered_map>

#include <lockstep/export/trace/recording.h>

namespace lockstep::onnx {

/// The modules of C++ leave no mark in a trace, but their parameters do: an operation stands in the
/// module whose parameter it uses (of several, the largest), or after the last one whose parameter
/// was used.
struct Place {
  std::string parameter{};  ///< empty before the first use of one
  bool uses_it = false;     ///< the operation itself uses the parameter

  /// "conv1" for "conv1.weight"; empty for a parameter of the module itself.
  std::string module() const;
  /// "in conv1 (parameter conv1.weight)", "after conv1 (...)", "before the first parameter".
  std::string text() const;
};

using Places = std::unordered_map<const torch::jit::Node*, Place>;

Places places_of(const torch::jit::Graph& graph, std::size_t inputs,
                 const NamedParameters& parameters);

}  // namespace lockstep::onnx
