// The content of a file of torch.export.save, as data without LibTorch.
//
// An exported program is a list of operator calls. Values have names: those of the graph's inputs
// (parameters, buffers, constants and what the user passes) and of the results of its nodes.
//
// Format: torch/_export/serde/schema.py of PyTorch, schema 8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <lockstep/core/export.h>

namespace lockstep::program {

struct LOCKSTEP_API None{};

/// A reference to the value `name` of the same graph, which is a tensor.
struct LOCKSTEP_API TensorName {
  std::string name{};
};

/// A reference to the value `name` of the same graph, which is a number or a truth value.
struct LOCKSTEP_API NumberName {
  std::string name{};
};

// Enumerations of the schema, which differ from LibTorch's.
struct LOCKSTEP_API ScalarTypeCode {
  std::int64_t code = 0;
  bool operator==(const ScalarTypeCode&) const = default;
};
struct LOCKSTEP_API LayoutCode {
  std::int64_t code = 0;
};
struct LOCKSTEP_API MemoryFormatCode {
  std::int64_t code = 0;
};

struct LOCKSTEP_API DeviceName {
  std::string type{};  ///< "cpu", "cuda"
  std::optional<std::int64_t> index{};
  bool operator==(const DeviceName&) const = default;
};

struct LOCKSTEP_API ComplexNumber {
  double real = 0;
  double imaginary = 0;
};

struct Graph;
/// A graph that a higher-order operator such as `cond` runs.
struct LOCKSTEP_API Subgraph {
  std::string name{};
  std::shared_ptr<const Graph> graph{};
};

struct Argument;
struct LOCKSTEP_API ArgumentList {
  std::vector<Argument> items;
};

/// What a node passes to its operator, and what a graph returns.
struct LOCKSTEP_API Argument {
  std::variant<None, TensorName, NumberName, bool, std::int64_t, double, std::string, ComplexNumber,
               ScalarTypeCode, LayoutCode, MemoryFormatCode, DeviceName, Subgraph, ArgumentList>
      value{};
};

/// Calls visit(name, is_number) for each value of the graph that `argument` refers to, in order.
template <class Visit>
void for_each_name(const Argument& argument, const Visit& visit) {
  if (const auto* list = std::get_if<ArgumentList>(&argument.value)) {
    for (const Argument& item : list->items) for_each_name(item, visit);
  } else if (const auto* tensor = std::get_if<TensorName>(&argument.value)) {
    if (!tensor->name.empty()) visit(tensor->name, /*is_number=*/false);
  } else if (const auto* number = std::get_if<NumberName>(&argument.value)) {
    if (!number->name.empty()) visit(number->name, /*is_number=*/true);
  }
}

/// Calls visit("a.b"), visit("a") and visit("") for the path "a.b": the module and those around it.
template <class Visit>
void for_each_module(std::string_view path, const Visit& visit) {
  visit(path);
  while (!path.empty()) {
    const std::size_t dot = path.rfind('.');
    path = path.substr(0, dot == std::string_view::npos ? 0 : dot);
    visit(path);
  }
}

struct LOCKSTEP_API NamedArgument {
  std::string name{};  ///< as in the operator's schema; empty for higher-order operators
  Argument argument{};
};

/// A call of an operator.
struct LOCKSTEP_API Node {
  std::string name{};
  std::string target{};  ///< "torch.ops.aten.conv2d.default", "_operator.mul"
  std::vector<NamedArgument> inputs{};
  std::vector<Argument> outputs{};  ///< one for each value that the operator returns
  std::string module_path{};        ///< the Python module that made the call: "layer1.0.conv1"
  std::string module_class{};       ///< the class of that module: "torch.nn.modules.conv.Conv2d"
  std::string source{};             ///< "net.py:12: x = self.conv1(x)"; empty if unknown
};

/// The argument `name` of the node; null if the operator's default is meant.
inline const Argument* find_input(const Node& node, std::string_view name) {
  for (const NamedArgument& input : node.inputs) {
    if (input.name == name) return &input.argument;
  }
  return nullptr;
}

/// A size of a tensor.
struct LOCKSTEP_API Size {
  std::int64_t value = 0;    ///< the size, or its value when the model was exported
  std::string expression{};  ///< how it depends on symbols (expression.h); empty if it is fixed
};

struct LOCKSTEP_API TensorDescription {
  ScalarTypeCode dtype{};
  std::vector<Size> sizes{};
  std::vector<Size> strides{};
  Size storage_offset{};
  DeviceName device{};
  LayoutCode layout{};
  bool requires_grad = false;
};

struct LOCKSTEP_API Graph {
  std::vector<Argument> inputs{};
  std::vector<Argument> outputs{};
  std::vector<Node> nodes{};
  std::map<std::string, TensorDescription> tensors{};  ///< by the name of the value
  /// The classes of the modules that made calls, here or in a subgraph, and of those around them,
  /// by their paths: "" is "net.Net", "layer1.0" is "torchvision.models.resnet.Bottleneck".
  std::map<std::string, std::string, std::less<>> module_classes{};
};

/// What an input of the graph is.
struct LOCKSTEP_API InputSpec {
  enum class Kind { kUser, kParameter, kBuffer, kConstant, kFixed };
  Kind kind = Kind::kUser;
  Argument argument{};     ///< the value in the graph; for kFixed the constant
  std::string target{};    ///< Python's name of the parameter, buffer or constant, or the input
  bool persistent = true;  ///< a buffer that belongs to the state dict
  /// A tensor that the stage before passes on, rather than an argument of the whole program.
  bool is_from_stage = false;
};

/// Whether forward() takes it.
inline bool is_user(const InputSpec& input) {
  return input.kind == InputSpec::Kind::kUser || input.kind == InputSpec::Kind::kFixed;
}

/// What an output of the graph is.
struct LOCKSTEP_API OutputSpec {
  /// After the last node, a kMutation is written to a parameter or buffer, and a kUserMutation to a
  /// tensor that the user passes.
  enum class Kind { kUser, kMutation, kUserMutation };
  Kind kind = Kind::kUser;
  Argument argument{};
  /// What a kMutation writes to, as in InputSpec; the name of a kUserMutation's value in the graph.
  std::string target{};
};

/// A nested structure of values, as torch.utils._pytree describes it.
struct LOCKSTEP_API Structure {
  enum class Kind { kLeaf, kList, kTuple, kDict, kObject };
  Kind kind = Kind::kLeaf;
  std::string type{};                ///< the class of a kObject: a dataclass, a named tuple
  std::vector<std::string> names{};  ///< the keys of a kDict, the fields of a kObject
  std::vector<Structure> children{};
};

struct LOCKSTEP_API SymbolRange {
  std::optional<std::int64_t> least{};
  std::optional<std::int64_t> most{};
};

struct LOCKSTEP_API ExportedGraph {
  Graph graph{};
  std::vector<InputSpec> inputs{};    ///< one for each input of the graph
  std::vector<OutputSpec> outputs{};  ///< one for each output of the graph
  Structure arguments{};              ///< a tuple and a dict: forward(*args, **kwargs)
  Structure results{};
  std::vector<std::string> argument_names{};  ///< what forward() declares, in order
  std::map<std::string, SymbolRange> ranges{};
  std::vector<std::string> guards{};  ///< conditions on the arguments, in Python
  std::string torch_version{};
};

}  // namespace lockstep::program
