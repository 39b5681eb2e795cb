#include <lockstep/program/graph/read_graph.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/formats/printable.h>
#include <lockstep/formats/strict_json.h>
#include <lockstep/program/graph/references.h>

namespace lockstep::program {
namespace {

using Json = nlohmann::json;
using formats::printable;

// Graphs of higher-order operators lie in each other, 7 levels of JSON each.
constexpr int kMaximumJsonDepth = 300;
// The value of a size that depends on the data.
constexpr std::int64_t kUnknownSize = 2;
// Structures have their own text, and are walked recursively.
constexpr int kMaximumStructureDepth = 64;
constexpr int kMaximumContextDepth = 16;
// The names that lead to one value, together: a small file must not request gigabytes of names.
constexpr std::size_t kMaximumPathBytes = 1000;

// A value in the JSON and the way to it, for messages.
class Place {
 public:
  Place(const Json& json, std::string_view file) : json_(json), file_(file) {}

  Place operator[](const char* key) const {
    const Json& object = expect(json_.is_object(), "an object");
    const auto found = object.find(key);
    if (found == object.end()) fail("'", key, "' is missing");
    return {*found, this, key};
  }
  bool has(const char* key) const {
    const Json& object = expect(json_.is_object(), "an object");
    const auto found = object.find(key);
    return found != object.end() && !found->is_null();
  }
  // The only key of a union, and its value.
  std::pair<std::string, Place> choice() const {
    const Json& object = expect(json_.is_object() && json_.size() == 1, "an object with one key");
    const auto item = object.begin();
    return {item.key(), Place(item.value(), this, item.key().c_str())};
  }
  template <class F>
  auto list(const F& read) const {
    std::vector<decltype(read(std::declval<Place>()))> result;
    const Json& items = expect(json_.is_array(), "a list");
    result.reserve(items.size());
    for (std::size_t i = 0; i < items.size(); ++i) {
      result.push_back(read(Place(items[i], this, nullptr, i)));
    }
    return result;
  }
  // Calls read(key, value) for each item of an object.
  template <class F>
  void items(const F& read) const {
    for (const auto& [key, value] : expect(json_.is_object(), "an object").items()) {
      read(key, Place(value, this, key.c_str()));
    }
  }

  std::string text() const { return expect(json_.is_string(), "a string").get<std::string>(); }
  bool truth() const { return expect(json_.is_boolean(), "true or false").get<bool>(); }
  std::int64_t integer() const {
    constexpr std::uint64_t most = std::numeric_limits<std::int64_t>::max();
    expect(json_.is_number_integer() &&
               (!json_.is_number_unsigned() || json_.get<std::uint64_t>() <= most),
           "a whole number of 64 bits");
    return json_.get<std::int64_t>();
  }
  // JSON has no numbers that are not finite; PyTorch writes them as text.
  double number() const {
    if (json_.is_string()) {
      const std::string text = json_.get<std::string>();
      if (text == "Infinity") return std::numeric_limits<double>::infinity();
      if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
      if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
    }
    return expect(json_.is_number(), "a number").get<double>();
  }
  const Json& json() const { return json_; }

  template <class... Values>
  [[noreturn]] void fail(const Values&... values) const {
    std::string way;
    const Place* root = this;
    for (; root->parent_ != nullptr; root = root->parent_) {
      way =
          str(root->key_ != nullptr ? str('.', printable(root->key_)) : str('[', root->index_, ']'),
              way);
    }
    if (way.starts_with('.')) way.erase(0, 1);
    throw CheckpointError(str(root->file_, ": ", way, way.empty() ? "" : ": ", values...));
  }

 private:
  Place(const Json& json, const Place* parent, const char* key, std::size_t index = 0)
      : json_(json), parent_(parent), key_(key), index_(index) {}

  const Json& expect(bool condition, const char* what) const {
    if (!condition) fail("expected ", what, ", got ", json_.type_name());
    return json_;
  }

  const Json& json_;
  std::string_view file_;
  const Place* parent_ = nullptr;
  const char* key_ = nullptr;
  std::size_t index_ = 0;
};

Graph read_nodes(const Place& place);

DeviceName read_device(const Place& place) {
  DeviceName device{.type = place["type"].text()};
  if (place.has("index")) device.index = place["index"].integer();
  return device;
}

// A size of a tensor, {"as_int": 3} or {"as_expr": {"expr_str": "2*s0"}}.
Size read_size(const Place& place) {
  const auto [kind, value] = place.choice();
  if (kind == "as_int") return {.value = value.integer()};
  if (kind == "as_expr") {
    Size size{.value = kUnknownSize, .expression = value["expr_str"].text()};
    if (!value.has("hint")) return size;
    const auto [hint_kind, hint] = value["hint"].choice();
    if (hint_kind == "as_int") size.value = hint.integer();
    return size;
  }
  value.fail("the size '", printable(kind), "' is not supported");
}

TensorDescription read_tensor(const Place& place) {
  TensorDescription tensor;
  tensor.dtype = {place["dtype"].integer()};
  tensor.sizes = place["sizes"].list(read_size);
  tensor.strides = place["strides"].list(read_size);
  tensor.storage_offset = read_size(place["storage_offset"]);
  tensor.device = read_device(place["device"]);
  tensor.layout = {place["layout"].integer()};
  tensor.requires_grad = place["requires_grad"].truth();
  if (tensor.strides.size() != tensor.sizes.size()) {
    place.fail(tensor.sizes.size(), " sizes, but ", tensor.strides.size(), " strides");
  }
  return tensor;
}

Argument tensor_name(const Place& place) { return {TensorName{place["name"].text()}}; }

// A number that is constant or has a name; `constant` is the key of the constant.
Argument read_number(const Place& place) {
  const auto [kind, value] = place.choice();
  if (kind == "as_name") return {NumberName{value.text()}};
  if (kind == "as_int") return {value.integer()};
  if (kind == "as_float") return {value.number()};
  if (kind == "as_bool") return {value.truth()};
  value.fail("a number of the kind '", printable(kind), "' is not supported");
}

Argument read_optional_tensor(const Place& place) {
  const auto [kind, value] = place.choice();
  if (kind == "as_none") return {};
  if (kind == "as_tensor") return tensor_name(value);
  value.fail("an optional tensor of the kind '", printable(kind), "' is not supported");
}

template <class F>
Argument read_list(const Place& place, const F& read) {
  return {ArgumentList{place.list([&](const Place& item) -> Argument { return read(item); })}};
}

Argument read_integer(const Place& place) { return {place.integer()}; }
Argument read_float(const Place& place) { return {place.number()}; }
Argument read_truth(const Place& place) { return {place.truth()}; }
Argument read_text(const Place& place) { return {place.text()}; }

struct ArgumentKind {
  const char* name;
  Argument (*read)(const Place&);
};

constexpr ArgumentKind kArgumentKinds[] = {
    {"as_none", [](const Place&) -> Argument { return {}; }},
    {"as_tensor", tensor_name},
    {"as_tensors", [](const Place& p) { return read_list(p, tensor_name); }},
    {"as_optional_tensor", read_optional_tensor},
    {"as_optional_tensors", [](const Place& p) { return read_list(p, read_optional_tensor); }},
    {"as_nested_tensors",
     [](const Place& p) {
       return read_list(p, [](const Place& q) { return read_list(q, tensor_name); });
     }},
    {"as_int", read_integer},
    {"as_ints", [](const Place& p) { return read_list(p, read_integer); }},
    {"as_int_lists",
     [](const Place& p) {
       return read_list(p, [](const Place& q) { return read_list(q, read_integer); });
     }},
    {"as_sym_int", read_number},
    {"as_sym_ints", [](const Place& p) { return read_list(p, read_number); }},
    {"as_float", read_float},
    {"as_floats", [](const Place& p) { return read_list(p, read_float); }},
    {"as_sym_float", read_number},
    {"as_sym_floats", [](const Place& p) { return read_list(p, read_number); }},
    {"as_bool", read_truth},
    {"as_bools", [](const Place& p) { return read_list(p, read_truth); }},
    {"as_sym_bool", read_number},
    {"as_sym_bools", [](const Place& p) { return read_list(p, read_number); }},
    {"as_string", read_text},
    {"as_strings", [](const Place& p) { return read_list(p, read_text); }},
    {"as_complex",
     [](const Place& p) -> Argument {
       return {ComplexNumber{p["real"].number(), p["imag"].number()}};
     }},
    {"as_scalar_type", [](const Place& p) -> Argument { return {ScalarTypeCode{p.integer()}}; }},
    {"as_memory_format",
     [](const Place& p) -> Argument { return {MemoryFormatCode{p.integer()}}; }},
    {"as_layout", [](const Place& p) -> Argument { return {LayoutCode{p.integer()}}; }},
    {"as_device", [](const Place& p) -> Argument { return {read_device(p)}; }},
    {"as_graph",
     [](const Place& p) -> Argument {
       return {Subgraph{p["name"].text(), std::make_shared<const Graph>(read_nodes(p["graph"]))}};
     }},
};

Argument read_argument(const Place& place) {
  const auto [kind, value] = place.choice();
  for (const ArgumentKind& known : kArgumentKinds) {
    if (kind == known.name) return known.read(value);
  }
  if (kind == "as_custom_obj") {
    value.fail("the object '", printable(value["name"].text()), "' of the class '",
               printable(value["class_fqn"].text()),
               "' is not supported: an exported program may hold only tensors and numbers");
  }
  value.fail("an argument of the kind '", printable(kind), "' is not supported");
}

// The last line of Python code in a stack trace: "net.py:12: x = self.conv1(x)". Frames of PyTorch
// itself are skipped, if there are others.
std::string source_line(std::string_view trace) {
  std::string best;
  bool best_is_of_torch = true;
  while (!trace.empty()) {
    const std::size_t end = std::min(trace.find('\n'), trace.size());
    std::string_view line = trace.substr(0, end);
    trace.remove_prefix(std::min(end + 1, trace.size()));
    const std::size_t file = line.find("File \"");
    const std::size_t file_end = line.find("\", line ");
    if (file == std::string_view::npos || file_end == std::string_view::npos) continue;
    const std::string_view path = line.substr(file + 6, file_end - file - 6);
    std::string_view number = line.substr(file_end + 8);
    number = number.substr(0, number.find(','));
    std::string_view code = trace.substr(0, std::min(trace.find('\n'), trace.size()));
    code.remove_prefix(std::min(code.find_first_not_of(' '), code.size()));
    if (code.starts_with("File \"")) code = {};
    const bool is_of_torch =
        path.find("/torch/") != std::string_view::npos || path.starts_with("torch/");
    if (!best.empty() && is_of_torch && !best_is_of_torch) continue;
    best = printable(
        str(path.substr(path.rfind('/') + 1), ':', number, code.empty() ? "" : ": ", code));
    best_is_of_torch = is_of_torch;
  }
  return best;
}

// The path and class in one entry of a stack of modules, "L__self__conv1,conv1,net.Conv".
std::pair<std::string_view, std::string_view> module_of(std::string_view entry) {
  const std::size_t path = entry.find(',');
  if (path == std::string_view::npos) return {};
  entry.remove_prefix(path + 1);
  const std::string_view name = entry.substr(0, entry.find(','));
  entry.remove_prefix(std::min(name.size() + 1, entry.size()));
  // Nodes that PyTorch adds itself have a text of its own.
  if (name.starts_with("_empty_nn_module_stack")) return {};
  return {name, entry};
}

// Adds the modules in "L__self__,,net.Net;L__self__conv1,conv1,torch.nn.modules.conv.Conv2d" to
// `classes`, and returns the path and class of the last one, which made the call.
std::pair<std::string_view, std::string_view> read_modules(
    std::string_view stack, std::map<std::string, std::string, std::less<>>& classes) {
  std::pair<std::string_view, std::string_view> last;
  while (true) {
    const std::size_t end = std::min(stack.find(';'), stack.size());
    last = module_of(stack.substr(0, end));
    const auto& [path, type] = last;
    if (!type.empty() && !classes.contains(path)) classes.emplace(path, type);
    if (end == stack.size()) return last;
    stack.remove_prefix(end + 1);
  }
}

Node read_node(const Place& place, std::map<std::string, std::string, std::less<>>& classes) {
  Node node;
  node.target = place["target"].text();
  if (place.has("name")) node.name = place["name"].text();
  const Place metadata = place["metadata"];
  if (metadata.has("stack_trace")) node.source = source_line(metadata["stack_trace"].text());
  if (metadata.has("nn_module_stack")) {
    const std::string stack = metadata["nn_module_stack"].text();
    std::tie(node.module_path, node.module_class) = read_modules(stack, classes);
  }
  node.inputs = place["inputs"].list([](const Place& input) {
    return NamedArgument{input["name"].text(), read_argument(input["arg"])};
  });
  node.outputs = place["outputs"].list(read_argument);
  return node;
}

Graph read_nodes(const Place& place) {
  Graph graph;
  graph.inputs = place["inputs"].list(read_argument);
  graph.outputs = place["outputs"].list(read_argument);
  graph.nodes =
      place["nodes"].list([&](const Place& node) { return read_node(node, graph.module_classes); });
  // The modules of a region belong to the program as those of its other calls do.
  for (const Node& node : graph.nodes) {
    for (const NamedArgument& input : node.inputs) {
      const auto* inner = std::get_if<Subgraph>(&input.argument.value);
      if (inner == nullptr) continue;
      graph.module_classes.insert(inner->graph->module_classes.begin(),
                                  inner->graph->module_classes.end());
    }
  }
  place["tensor_values"].items([&](const std::string& name, const Place& tensor) {
    graph.tensors.emplace(name, read_tensor(tensor));
  });
  return graph;
}

InputSpec read_input(const Place& place) {
  using Kind = InputSpec::Kind;
  const auto [kind, value] = place.choice();
  if (kind == "user_input") return {.kind = Kind::kUser, .argument = read_argument(value["arg"])};
  if (kind == "parameter") {
    return {.kind = Kind::kParameter,
            .argument = tensor_name(value["arg"]),
            .target = value["parameter_name"].text()};
  }
  if (kind == "buffer") {
    return {.kind = Kind::kBuffer,
            .argument = tensor_name(value["arg"]),
            .target = value["buffer_name"].text(),
            .persistent = value["persistent"].truth()};
  }
  if (kind == "tensor_constant") {
    return {.kind = Kind::kConstant,
            .argument = tensor_name(value["arg"]),
            .target = value["tensor_constant_name"].text()};
  }
  if (kind == "constant_input") {
    return {.kind = Kind::kFixed,
            .argument = read_argument(value["value"]),
            .target = value["name"].text()};
  }
  value.fail("an input of the kind '", printable(kind), "' is not supported");
}

OutputSpec read_output(const Place& place) {
  using Kind = OutputSpec::Kind;
  const auto [kind, value] = place.choice();
  if (kind == "user_output") return {.kind = Kind::kUser, .argument = read_argument(value["arg"])};
  if (kind == "loss_output") return {.kind = Kind::kUser, .argument = tensor_name(value["arg"])};
  const bool is_user = kind == "user_input_mutation";
  const char* target = kind == "buffer_mutation"      ? "buffer_name"
                       : kind == "parameter_mutation" ? "parameter_name"
                       : is_user                      ? "user_input_name"
                                                      : nullptr;
  if (target == nullptr) {
    value.fail("an output of the kind '", printable(kind), "' is not supported");
  }
  return {.kind = is_user ? Kind::kUserMutation : Kind::kMutation,
          .argument = tensor_name(value["arg"]),
          .target = value[target].text()};
}

// The keys of a dict are written as JSON, numbers among them.
std::string key_text(const Json& key) {
  return key.is_string() ? key.get<std::string>() : key.dump();
}

std::vector<std::string> texts(const Json& list) {
  std::vector<std::string> result;
  for (const Json& item : list) result.push_back(key_text(item));
  return result;
}

// A context is JSON, the text of JSON, or another text.
Json parsed_context(const Json& context) {
  if (!context.is_string()) return context;
  try {
    return formats::parse_strict_json(context.get_ref<const std::string&>(), kMaximumContextDepth);
  } catch (const formats::StrictJsonError&) {
    return context;
  }
}

using NamedTuples = std::map<std::string, std::vector<std::string>>;

// The names of the children of a structure; empty if they have none.
std::vector<std::string> child_names(const std::string& type, const Json& context,
                                     const NamedTuples& named_tuples) {
  Json names = parsed_context(context);
  if (type == "collections.defaultdict" && names.is_object() && names.contains("dict_context")) {
    names = parsed_context(names["dict_context"]);
  }
  if (type == "collections.namedtuple" && names.is_string()) {
    const auto found = named_tuples.find(names.get<std::string>());
    return found == named_tuples.end() ? std::vector<std::string>() : found->second;
  }
  if (!names.is_array()) return {};
  // A dataclass has two lists: the fields that are set, and those that are None.
  if (!names.empty() && names.front().is_array()) names = Json(names.front());
  return texts(names);
}

Structure::Kind kind_of(std::string_view type) {
  using Kind = Structure::Kind;
  if (type == "builtins.tuple") return Kind::kTuple;
  if (type == "builtins.list" || type == "collections.deque") return Kind::kList;
  const bool is_dict = type == "builtins.dict" || type == "collections.OrderedDict" ||
                       type == "collections.defaultdict";
  return is_dict ? Kind::kDict : Kind::kObject;
}

Structure read_structure(const Place& place, const NamedTuples& named_tuples, int depth = 0,
                         std::size_t path_bytes = 0) {
  if (depth > kMaximumStructureDepth) place.fail("is nested too deeply");
  if (path_bytes > kMaximumPathBytes) {
    place.fail("its name has more than ", kMaximumPathBytes, " bytes");
  }
  Structure structure;
  if (place.has("type")) {
    structure.type = place["type"].text();
    structure.kind = kind_of(structure.type);
  }
  const bool has_names =
      structure.kind == Structure::Kind::kDict || structure.kind == Structure::Kind::kObject;
  if (has_names && place.has("context")) {
    structure.names = child_names(structure.type, place["context"].json(), named_tuples);
  }
  std::size_t next = 0;
  structure.children = place["children_spec"].list([&](const Place& child) {
    const std::size_t bytes = next < structure.names.size() ? structure.names[next].size() : 0;
    ++next;
    return read_structure(child, named_tuples, depth + 1, path_bytes + bytes);
  });
  if (structure.kind == Structure::Kind::kLeaf && !structure.children.empty()) {
    place.fail("a leaf has children");
  }
  if (has_names && structure.names.size() != structure.children.size()) {
    place.fail("a ", printable(structure.type), " of ", structure.children.size(), " values has ",
               structure.names.size(), " names");
  }
  return structure;
}

Structure read_structure_text(const Place& place, const NamedTuples& named_tuples) {
  Json json;
  try {
    json = formats::parse_strict_json(place.text(), kMaximumJsonDepth);
  } catch (const formats::StrictJsonError& error) {
    place.fail(error.what());
  }
  if (!json.is_array() || json.size() != 2 || json.front() != 1) {
    place.fail("expected a structure of version 1");
  }
  try {
    return read_structure(Place(json[1], ""), named_tuples);
  } catch (const CheckpointError& error) {
    place.fail(std::string_view(error.what()).substr(2));
  }
}

std::size_t leaves(const Structure& structure) {
  if (structure.kind == Structure::Kind::kLeaf) return 1;
  std::size_t count = 0;
  for (const Structure& child : structure.children) count += leaves(child);
  return count;
}

Json parse(std::string_view text, std::string_view name) {
  try {
    return formats::parse_strict_json(text, kMaximumJsonDepth);
  } catch (const formats::StrictJsonError& error) {
    throw CheckpointError(str(name, ": ", error.what()));
  }
}

}  // namespace

ExportedGraph read_graph(std::string_view text, std::string_view name) {
  const Json json = parse(text, name);
  const Place root(json, name);
  const Place version = root["schema_version"];
  if (const std::int64_t major = version["major"].integer(); major != kSchemaVersion) {
    version.fail("the schema has version ", major, ".", version["minor"].integer(), ", expected ",
                 kSchemaVersion, "; export the model with a PyTorch from 2.7 on");
  }
  ExportedGraph program;
  if (root.has("torch_version")) program.torch_version = root["torch_version"].text();
  const Place module = root["graph_module"];
  program.graph = read_nodes(module["graph"]);
  const Place signature = module["signature"];
  program.inputs = signature["input_specs"].list(read_input);
  program.outputs = signature["output_specs"].list(read_output);
  if (program.inputs.size() != program.graph.inputs.size() ||
      program.outputs.size() != program.graph.outputs.size()) {
    signature.fail("describes ", program.inputs.size(), " inputs and ", program.outputs.size(),
                   " outputs of a graph with ", program.graph.inputs.size(), " and ",
                   program.graph.outputs.size());
  }
  if (root.has("guards_code")) {
    program.guards = root["guards_code"].list([](const Place& guard) { return guard.text(); });
  }
  root["range_constraints"].items([&](const std::string& symbol, const Place& range) {
    SymbolRange& known = program.ranges[symbol];
    if (range.has("min_val")) known.least = range["min_val"].integer();
    if (range.has("max_val")) known.most = range["max_val"].integer();
  });

  NamedTuples named_tuples;
  if (module.has("treespec_namedtuple_fields")) {
    module["treespec_namedtuple_fields"].items([&](const std::string& type, const Place& fields) {
      named_tuples[type] =
          fields["field_names"].list([](const Place& field) { return field.text(); });
    });
  }
  bool has_structure = false;
  module["module_call_graph"].list([&](const Place& entry) {
    if (!entry["fqn"].text().empty() || !entry.has("signature")) return 0;
    const Place call = entry["signature"];
    program.arguments = read_structure_text(call["in_spec"], named_tuples);
    program.results = read_structure_text(call["out_spec"], named_tuples);
    if (call.has("forward_arg_names")) {
      program.argument_names =
          call["forward_arg_names"].list([](const Place& argument) { return argument.text(); });
    }
    has_structure = true;
    return 0;
  });
  if (!has_structure) module.fail("module_call_graph lacks the signature of the model");
  const auto user_inputs = std::count_if(program.inputs.begin(), program.inputs.end(), is_user);
  const auto user_outputs = std::count_if(
      program.outputs.begin(), program.outputs.end(),
      [](const OutputSpec& output) { return output.kind == OutputSpec::Kind::kUser; });
  if (leaves(program.arguments) != static_cast<std::size_t>(user_inputs) ||
      leaves(program.results) != static_cast<std::size_t>(user_outputs)) {
    module.fail("the signature of forward() has ", leaves(program.arguments), " inputs and ",
                leaves(program.results), " outputs, the graph ", user_inputs, " and ",
                user_outputs);
  }
  check_references(program, name);
  return program;
}

std::map<std::string, Payload> read_payloads(std::string_view text, std::string_view name) {
  const Json json = parse(text, name);
  std::map<std::string, Payload> payloads;
  Place(json, name)["config"].items([&](const std::string& key, const Place& place) {
    Payload payload{.path = place["path_name"].text(),
                    .is_pickled = place["use_pickle"].truth(),
                    .is_parameter = place.has("is_param") && place["is_param"].truth()};
    if (!place.has("tensor_meta")) {
      place.fail("'", printable(key), "' is an object, but only tensors are supported");
    }
    payload.tensor = read_tensor(place["tensor_meta"]);
    payloads.emplace(key, std::move(payload));
  });
  return payloads;
}

}  // namespace lockstep::program
