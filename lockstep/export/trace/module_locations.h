// The location of a recorded operation in the user's module.
#pragma once

#include <string>
#include <unordered_map>

#include <lockstep/export/trace/recording.h>

namespace lockstep::onnx {

/// C++ modules leave no mark in a trace, but their parameters do. An operation is located in the
/// module whose parameter it uses (the largest parameter if it uses several), otherwise after the
/// last module whose parameter was used.
struct ModuleLocation {
  std::string parameter{};  ///< empty before the first use of a parameter
  bool uses_it = false;     ///< whether the operation itself uses the parameter
  std::string source{};     ///< the line of Python that an exported program notes; or empty

  /// "conv1" for "conv1.weight"; empty for a parameter of the module itself.
  std::string module() const;
  /// "in conv1 (parameter conv1.weight)", "after conv1 (...)", "before the first parameter"; then
  /// the line of Python if it is known, ", net.py:12: x = self.conv1(x)".
  std::string text() const;
};

using ModuleLocations = std::unordered_map<const torch::jit::Node*, ModuleLocation>;

ModuleLocations module_locations_of(const torch::jit::Graph& graph, std::size_t inputs,
                                    const NamedParameters& parameters);

/// The location of the last operation in `graph`.
ModuleLocation last_location_in(const torch::jit::Graph& graph, std::size_t inputs,
                                const NamedParameters& parameters);

}  // namespace lockstep::onnx
