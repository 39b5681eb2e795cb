#include <lockstep/program/graph/references.h>

#include <set>
#include <string>

#include <lockstep/core/error.h>
#include <lockstep/formats/printable.h>

namespace lockstep::program {
namespace {

using formats::printable;
using Names = std::set<std::string, std::less<>>;

// Parameters, buffers and modules have a path, "layer1.0.weight".
bool is_path(std::string_view name) {
  return !name.empty() && !name.starts_with('.') && !name.ends_with('.') &&
         name.find("..") == std::string_view::npos;
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
      if (!node.module_path.empty() && !is_path(node.module_path)) {
        throw CheckpointError(str(file_, ": ", where, " belongs to a module with the name '",
                                  printable(node.module_path), "'"));
      }
      for (const NamedArgument& input : node.inputs) use(input.argument, defined, where);
      for (const Argument& output : node.outputs) define(output, defined, where);
    }
    for (const Argument& output : graph.outputs) use(output, defined, "the outputs");
  }

 private:
  void define(const Argument& argument, Names& defined, const std::string& where) const {
    for_each_name(argument, [&](const std::string& name, bool) {
      if (defined.insert(name).second) return;
      throw CheckpointError(
          str(file_, ": '", printable(name), "' is defined a second time by ", where));
    });
  }

  // The graph of a higher-order operator has names of its own.
  void use(const Argument& argument, const Names& defined, const std::string& where) {
    if (const auto* list = std::get_if<ArgumentList>(&argument.value)) {
      for (const Argument& item : list->items) use(item, defined, where);
      return;
    }
    if (const auto* graph = std::get_if<Subgraph>(&argument.value)) check(*graph->graph);
    const auto known = [&](const std::string& name) {
      if (defined.contains(name)) return;
      throw CheckpointError(
          str(file_, ": '", printable(name), "' is used by ", where, ", but not defined before"));
    };
    if (const auto* tensor = std::get_if<TensorName>(&argument.value)) known(tensor->name);
    if (const auto* number = std::get_if<NumberName>(&argument.value)) known(number->name);
  }

  std::string_view file_;
};

// The value that an argument refers to, or what it is instead, for messages.
std::string described(const Argument& argument) {
  std::string text = "a constant";
  if (std::holds_alternative<ArgumentList>(argument.value)) text = "a list";
  if (const auto* tensor = std::get_if<TensorName>(&argument.value)) {
    text = str("the tensor '", printable(tensor->name), "'");
  }
  if (const auto* number = std::get_if<NumberName>(&argument.value)) {
    text = str("the number '", printable(number->name), "'");
  }
  return text;
}

// The signature and the graph describe the same inputs, in the same order.
void check_inputs(const ExportedGraph& program, std::string_view file) {
  for (std::size_t i = 0; i < program.inputs.size(); ++i) {
    const std::string in_graph = described(program.graph.inputs[i]);
    const std::string in_signature = described(program.inputs[i].argument);
    if (in_graph == in_signature) continue;
    throw CheckpointError(str(file, ": input ", i, " of the graph is ", in_graph,
                              ", but the signature describes ", in_signature));
  }
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
  check_inputs(program, file);
  check_targets(program, file);
}

}  // namespace lockstep::program
