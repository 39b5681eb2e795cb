#include <lockstep/program/references.h>

#include <set>
#include <string>

#include <lockstep/core/error.h>
#include <lockstep/formats/printable.h>

namespace lockstep::program {
namespace {

using formats::printable;
using Names = std::set<std::string, std::less<>>;

const std::string* name_of(const Argument& argument) {
  if (const auto* tensor = std::get_if<TensorName>(&argument.value)) return &tensor->name;
  if (const auto* number = std::get_if<NumberName>(&argument.value)) return &number->name;
  return nullptr;
}

class DefinitionCheck {
 public:
  explicit DefinitionCheck(std::string_view file) : file_(file) {}

  void check(const Graph& graph) {
    Names defined;
    for (const Argument& input : graph.inputs) define(input, defined, "the inputs");
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      const Node& node = graph.nodes[i];
      const std::string where = str("node ", i, " (", printable(node.target),
                                    node.source.empty() ? "" : " at ", node.source, ")");
      for (const NamedArgument& input : node.inputs) use(input.argument, defined, where);
      for (const Argument& output : node.outputs) define(output, defined, where);
    }
    for (const Argument& output : graph.outputs) use(output, defined, "the outputs");
  }

 private:
  void define(const Argument& argument, Names& defined, const std::string& where) const {
    if (const auto* list = std::get_if<ArgumentList>(&argument.value)) {
      for (const Argument& item : list->items) define(item, defined, where);
    }
    const std::string* name = name_of(argument);
    if (name == nullptr || name->empty()) return;
    if (!defined.insert(*name).second) {
      throw CheckpointError(
          str(file_, ": '", printable(*name), "' is defined a second time by ", where));
    }
  }

  // The graph of a higher-order operator has names of its own.
  void use(const Argument& argument, const Names& defined, const std::string& where) {
    if (const auto* list = std::get_if<ArgumentList>(&argument.value)) {
      for (const Argument& item : list->items) use(item, defined, where);
    }
    if (const auto* graph = std::get_if<Subgraph>(&argument.value)) check(*graph->graph);
    const std::string* name = name_of(argument);
    if (name == nullptr || defined.contains(*name)) return;
    throw CheckpointError(
        str(file_, ": '", printable(*name), "' is used by ", where, ", but not defined before"));
  }

  std::string_view file_;
};

// Parameters and buffers become those of modules, "layer1.0.weight" that of "layer1.0".
bool is_path(std::string_view name) {
  return !name.empty() && !name.starts_with('.') && !name.ends_with('.') &&
         name.find("..") == std::string_view::npos;
}

// Checks the names of parameters, buffers and constants, and what mutations are written to.
void check_targets(const ExportedGraph& program, std::string_view file) {
  Names state, user;
  for (const InputSpec& input : program.inputs) {
    if (input.kind == InputSpec::Kind::kUser) {
      const auto* tensor = std::get_if<TensorName>(&input.argument.value);
      if (tensor != nullptr) user.insert(tensor->name);
    } else if (input.kind != InputSpec::Kind::kFixed) {
      if (!is_path(input.target)) {
        throw CheckpointError(str(file, ": a tensor has the name '", printable(input.target), "'"));
      }
      if (!state.insert(input.target).second) {
        throw CheckpointError(
            str(file, ": two tensors have the name '", printable(input.target), "'"));
      }
    }
  }
  for (const OutputSpec& output : program.outputs) {
    if (output.kind == OutputSpec::Kind::kUser) continue;
    const Names& known = output.kind == OutputSpec::Kind::kUserMutation ? user : state;
    if (known.contains(output.target)) continue;
    throw CheckpointError(str(file, ": an output is written to '", printable(output.target),
                              "', which is no input of the graph"));
  }
}

}  // namespace

void check_references(const ExportedGraph& program, std::string_view file) {
  DefinitionCheck(file).check(program.graph);
  check_targets(program, file);
}

}  // namespace lockstep::program
