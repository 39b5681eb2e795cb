#include <lockstep/program/graph/signature.h>

#include <set>

#include <lockstep/core/file.h>
#include <lockstep/core/strings.h>
#include <lockstep/program/graph/pt2_file.h>

namespace lockstep::program {
namespace {

// Names each leaf of a structure: "x", "batch.image", "layers.0".
void name_leaves(const Structure& structure, const std::string& name,
                 std::vector<std::string>& names) {
  if (structure.kind == Structure::Kind::kLeaf) {
    names.push_back(name.empty() ? "0" : name);
    return;
  }
  for (std::size_t i = 0; i < structure.children.size(); ++i) {
    const std::string key = structure.names.empty() ? str(i) : structure.names[i];
    name_leaves(structure.children[i], name.empty() ? key : str(name, '.', key), names);
  }
}

// Adds the tensor that `argument` refers to; nothing for a number.
void add_tensor(const ExportedGraph& program, const Argument& argument, const std::string& name,
                std::vector<TensorSignature>& to) {
  const auto* tensor = std::get_if<TensorName>(&argument.value);
  if (tensor == nullptr) return;
  const auto described = program.graph.tensors.find(tensor->name);
  if (described == program.graph.tensors.end()) return;
  TensorSignature signature{.name = name};
  const ScalarTypeInfo* type = scalar_type_info(described->second.dtype);
  signature.dtype = type == nullptr ? "unknown" : type->name;
  for (const Size& size : described->second.sizes) {
    const bool is_fixed = size.expression.empty();
    signature.sizes.push_back(is_fixed ? std::optional(size.value) : std::nullopt);
  }
  to.push_back(std::move(signature));
}

std::set<std::string> used_values(const Graph& graph) {
  std::set<std::string> used;
  const auto use = [&](const std::string& name, bool) { used.insert(name); };
  for (const Node& node : graph.nodes) {
    for (const NamedArgument& input : node.inputs) for_each_name(input.argument, use);
  }
  for (const Argument& output : graph.outputs) for_each_name(output, use);
  return used;
}

}  // namespace

std::string type_text(const TensorSignature& tensor) {
  std::string text = tensor.dtype + " [";
  for (std::size_t i = 0; i < tensor.sizes.size(); ++i) {
    text += str(i == 0 ? "" : ", ", tensor.sizes[i] ? str(*tensor.sizes[i]) : "any");
  }
  return text + "]";
}

std::vector<std::string> leaf_names(const ExportedGraph& program) {
  std::vector<std::string> names;
  std::size_t argument = 0;
  for (const Structure& part : program.arguments.children) {  // positional, then keyword arguments
    for (std::size_t i = 0; i < part.children.size(); ++i, ++argument) {
      std::string name = i < part.names.size() ? part.names[i] : str(argument);
      if (part.names.empty() && argument < program.argument_names.size()) {
        name = program.argument_names[argument];
      }
      name_leaves(part.children[i], name, names);
    }
  }
  return names;
}

ProgramSignature signature_of(const ExportedGraph& program) {
  ProgramSignature signature;
  const std::vector<std::string> inputs = leaf_names(program);
  const std::set<std::string> used = used_values(program.graph);
  std::size_t leaf = 0;
  for (const InputSpec& input : program.inputs) {
    const bool is_fixed = input.kind == InputSpec::Kind::kFixed;
    if (!is_fixed && input.kind != InputSpec::Kind::kUser) continue;
    const std::string name = leaf < inputs.size() ? inputs[leaf] : str(leaf);
    ++leaf;
    const std::size_t before = signature.inputs.size();
    if (!is_fixed) add_tensor(program, input.argument, name, signature.inputs);
    if (signature.inputs.size() == before) continue;
    signature.inputs.back().is_used =
        used.contains(std::get<TensorName>(input.argument.value).name);
  }
  std::vector<std::string> outputs;
  name_leaves(program.results, "", outputs);
  leaf = 0;
  for (const OutputSpec& output : program.outputs) {
    if (output.kind != OutputSpec::Kind::kUser) continue;
    const std::string name = leaf < outputs.size() ? outputs[leaf] : str(leaf);
    ++leaf;
    add_tensor(program, output.argument, name, signature.outputs);
  }
  return signature;
}

ProgramSignature read_signature(const std::filesystem::path& path) {
  const MappedFile file(path);
  return signature_of(parse_pt2_graph(file.bytes(), path.string()));
}

}  // namespace lockstep::program
