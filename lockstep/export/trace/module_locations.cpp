#include <lockstep/export/trace/module_locations.h>

#include <lockstep/core/strings.h>

namespace lockstep::onnx {
namespace {

using torch::jit::Node;
using torch::jit::Value;

bool is_constant_node(const Node& node) { return node.kind() == c10::prim::Constant; }

// What the recorded program has noted as the origin of the operation (Plan::run() in the room
// program); C++ modules note nothing.
std::string source_of(const Node& node) {
  const torch::jit::SourceRange range = node.sourceRange();
  return range.source() == nullptr ? std::string() : range.source()->text_str().str();
}

}  // namespace

std::string ModuleLocation::module() const {
  const auto dot = parameter.rfind('.');
  return dot == std::string::npos ? std::string() : parameter.substr(0, dot);
}

std::string ModuleLocation::text() const {
  const std::string line = source.empty() ? "" : ", " + source;
  if (parameter.empty()) return "before the first parameter" + line;
  const std::string name = module().empty() ? "the module itself" : module();
  return str(uses_it ? "in " : "after ", name, " (parameter ", parameter, ")", line);
}

ModuleLocations module_locations_of(const torch::jit::Graph& graph, std::size_t inputs,
                                    const NamedParameters& parameters) {
  std::unordered_map<const Value*, const NamedParameters::value_type*> parameter_of;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    parameter_of[graph.inputs()[inputs + i]] = &parameters[i];
  }
  ModuleLocations locations;
  std::string last;
  for (const Node* node : graph.nodes()) {
    const NamedParameters::value_type* used = nullptr;
    bool only_parameters = true;  // or constants, as in weight.t(), which is made before its use
    for (const Value* input : node->inputs()) {
      const auto found = parameter_of.find(input);
      if (found != parameter_of.end()) {
        const bool larger = used == nullptr || found->second->second.numel() > used->second.numel();
        if (larger) used = found->second;
      } else if (!is_constant_node(*input->node())) {
        only_parameters = false;
      }
    }
    if (used != nullptr) last = used->first;
    if (used != nullptr && only_parameters) {
      for (const Value* output : node->outputs()) parameter_of[output] = used;
    }
    locations[node] = {.parameter = last, .uses_it = used != nullptr, .source = source_of(*node)};
  }
  return locations;
}

ModuleLocation last_location_in(const torch::jit::Graph& graph, std::size_t inputs,
                                const NamedParameters& parameters) {
  const ModuleLocations locations = module_locations_of(graph, inputs, parameters);
  ModuleLocation last;
  for (const Node* node : graph.nodes()) last = locations.at(node);
  return last;
}

}  // namespace lockstep::onnx
