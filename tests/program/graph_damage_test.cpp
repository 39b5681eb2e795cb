// Refusals of damaged or unsupported JSON of exported programs, as whole messages.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/program/graph/read_graph.h>
#include <tests/program/pt2_bytes.h>
#include <tests/support/messages.h>

namespace lockstep::testing_support {
namespace {

using nlohmann::json;

std::string refusal_of_text(const std::string& text) {
  return message_of<CheckpointError>([&] { program::read_graph(text, "x"); });
}

std::string refusal_of_model(const json& model) { return refusal_of_text(model.dump()); }

// small_model() with one value replaced by the JSON `value`, or removed if it is null.
json damaged(const std::string& pointer, const char* value) {
  json model = small_model();
  const json::json_pointer place(pointer);
  json& parent = model.at(place.parent_pointer());
  if (value != nullptr) {
    model[place] = json::parse(value);
  } else if (parent.is_array()) {
    parent.erase(std::stoul(place.back()));
  } else {
    parent.erase(place.back());
  }
  return model;
}

struct Damage {
  const char* pointer;
  const char* value;  // null: the value is missing
  const char* message;
};

// `before` is put in front of all pointers of `cases`, and "x: " in front of their messages.
template <std::size_t count>
void expect_refusals(const std::string& before, const Damage (&cases)[count]) {
  for (const Damage& damage : cases) {
    const std::string pointer = before + damage.pointer;
    EXPECT_EQ(refusal_of_model(damaged(pointer, damage.value)), str("x: ", damage.message))
        << pointer << " " << (damage.value == nullptr ? "missing" : damage.value);
  }
}

TEST(GraphDamage, HelperChangesOnlyOneValue) {
  EXPECT_EQ(refusal_of_model(small_model()), "nothing was thrown");
  EXPECT_EQ(refusal_of_model(damaged("/torch_version", "\"2.7\"")), "nothing was thrown");
  EXPECT_EQ(refusal_of_model(damaged("/torch_version", nullptr)), "nothing was thrown");
  EXPECT_EQ(
      damaged("/graph_module/graph/nodes/1", nullptr)["graph_module"]["graph"]["nodes"].size(), 2U);
}

TEST(GraphDamage, OfTheText) {
  EXPECT_EQ(refusal_of_text(""), "x: is not valid JSON (line 1, column 1)");
  EXPECT_EQ(refusal_of_text("{"), "x: is not valid JSON (line 1, column 2)");
  EXPECT_EQ(refusal_of_text("[]"), "x: expected an object, got array");
  EXPECT_EQ(refusal_of_text("null"), "x: expected an object, got null");
  EXPECT_EQ(refusal_of_text("{}"), "x: 'schema_version' is missing");
  const std::string text = small_model().dump();
  EXPECT_EQ(refusal_of_text("{\"torch_version\":\"1\"," + text.substr(1)),
            "x: repeats 'torch_version'");
  const std::string inner = "\"fqn\":\"layer\"";
  std::string repeated = text;
  repeated.replace(repeated.find(inner), inner.size(), inner + ",\"fqn\":\"\"");
  EXPECT_EQ(refusal_of_text(repeated), "x: repeats 'fqn'");
  EXPECT_EQ(refusal_of_text(std::string(301, '[')), "x: is nested too deeply");
  EXPECT_EQ(refusal_of_text(std::string(1'000'000, '[')), "x: is nested too deeply");
  std::string objects;
  for (int i = 0; i < 301; ++i) objects += "{\"a\":";
  EXPECT_EQ(refusal_of_text(objects), "x: is nested too deeply");
}

TEST(GraphDamage, OfTheVersion) {
  expect_refusals(
      "",
      {{"/schema_version", nullptr, "'schema_version' is missing"},
       {"/schema_version", "8", "schema_version: expected an object, got number"},
       {"/schema_version/major", "9",
        "schema_version: the schema has version 9.20, expected 8; export the model with a PyTorch "
        "from 2.7 on"},
       {"/schema_version/major", "7",
        "schema_version: the schema has version 7.20, expected 8; export the model with a PyTorch "
        "from 2.7 on"},
       {"/schema_version/major", "\"8\"",
        "schema_version.major: expected a whole number of 64 bits, got string"},
       {"/schema_version/major", "8.0",
        "schema_version.major: expected a whole number of 64 bits, got number"},
       {"/schema_version/major", nullptr, "schema_version: 'major' is missing"},
       {"/torch_version", "2.13", "torch_version: expected a string, got number"}});
}

TEST(GraphDamage, OfTheGraph) {
  expect_refusals(
      "",
      {{"/graph_module", nullptr, "'graph_module' is missing"},
       {"/graph_module", "[]", "graph_module: expected an object, got array"},
       {"/graph_module/graph", nullptr, "graph_module: 'graph' is missing"},
       {"/graph_module/graph", "null", "graph_module.graph: expected an object, got null"},
       {"/graph_module/graph/inputs", nullptr, "graph_module.graph: 'inputs' is missing"},
       {"/graph_module/graph/inputs/0", "{\"as_tensor\": 1}",
        "graph_module.graph.inputs[0].as_tensor: expected an object, got number"},
       {"/graph_module/graph/outputs", "1",
        "graph_module.graph.outputs: expected a list, got number"},
       {"/graph_module/graph/nodes", "{}", "graph_module.graph.nodes: expected a list, got object"},
       {"/graph_module/graph/tensor_values", nullptr,
        "graph_module.graph: 'tensor_values' is missing"},
       {"/graph_module/graph/tensor_values", "[]",
        "graph_module.graph.tensor_values: expected an object, got array"},
       {"/range_constraints", nullptr, "'range_constraints' is missing"},
       {"/range_constraints", "[]", "range_constraints: expected an object, got array"},
       {"/range_constraints/s0", "1", "range_constraints.s0: expected an object, got number"},
       {"/range_constraints/s0/min_val", "\"2\"",
        "range_constraints.s0.min_val: expected a whole number of 64 bits, got string"},
       {"/range_constraints/s0/max_val", "9223372036854775808",
        "range_constraints.s0.max_val: expected a whole number of 64 bits, got number"}});
}

TEST(GraphDamage, OfANode) {
  expect_refusals(
      "/graph_module/graph/nodes/1",
      {{"", "[]", "graph_module.graph.nodes[1]: expected an object, got array"},
       {"/target", nullptr, "graph_module.graph.nodes[1]: 'target' is missing"},
       {"/target", "3", "graph_module.graph.nodes[1].target: expected a string, got number"},
       {"/name", "3", "graph_module.graph.nodes[1].name: expected a string, got number"},
       {"/metadata", nullptr, "graph_module.graph.nodes[1]: 'metadata' is missing"},
       {"/metadata", "\"\"",
        "graph_module.graph.nodes[1].metadata: expected an object, got string"},
       {"/metadata/stack_trace", "5",
        "graph_module.graph.nodes[1].metadata.stack_trace: expected a string, got number"},
       {"/metadata/nn_module_stack", "{}",
        "graph_module.graph.nodes[1].metadata.nn_module_stack: expected a string, got object"},
       {"/inputs", nullptr, "graph_module.graph.nodes[1]: 'inputs' is missing"},
       {"/inputs/0/name", nullptr, "graph_module.graph.nodes[1].inputs[0]: 'name' is missing"},
       {"/inputs/0/arg", nullptr, "graph_module.graph.nodes[1].inputs[0]: 'arg' is missing"},
       {"/outputs", nullptr, "graph_module.graph.nodes[1]: 'outputs' is missing"},
       {"/outputs/0", "{\"as_tensor\": {}}",
        "graph_module.graph.nodes[1].outputs[0].as_tensor: 'name' is missing"}});
}

TEST(GraphDamage, OfAnArgument) {
  const std::string before = "graph_module.graph.nodes[1].inputs[0].arg";
  const struct {
    const char* argument;
    const char* message;
  } cases[] = {
      {"{}", ": expected an object with one key, got object"},
      {R"({"as_int": 1, "as_float": 2})", ": expected an object with one key, got object"},
      {"[]", ": expected an object with one key, got array"},
      {"5", ": expected an object with one key, got number"},
      {R"({"as_banana": 1})", ".as_banana: an argument of the kind 'as_banana' is not supported"},
      {R"({"": 1})", ".: an argument of the kind '' is not supported"},
      {R"({"a\nb": 1})", ".a?b: an argument of the kind 'a?b' is not supported"},
      {R"({"as_custom_obj": {"name": "obj_0", "class_fqn": "__torch__.torch.classes.A"}})",
       ".as_custom_obj: the object 'obj_0' of the class '__torch__.torch.classes.A' is not "
       "supported: an exported program may hold only tensors and numbers"},
      {R"({"as_custom_obj": {"name": "obj_0"}})", ".as_custom_obj: 'class_fqn' is missing"},
      {R"({"as_operator": "aten.add"})",
       ".as_operator: an argument of the kind 'as_operator' is not supported"},
      {R"({"as_int": "3"})", ".as_int: expected a whole number of 64 bits, got string"},
      {R"({"as_int": 1.5})", ".as_int: expected a whole number of 64 bits, got number"},
      {R"({"as_int": 9223372036854775808})",
       ".as_int: expected a whole number of 64 bits, got number"},
      {R"({"as_int": true})", ".as_int: expected a whole number of 64 bits, got boolean"},
      {R"({"as_ints": 3})", ".as_ints: expected a list, got number"},
      {R"({"as_ints": [1, null]})", ".as_ints[1]: expected a whole number of 64 bits, got null"},
      {R"({"as_int_lists": [[1], 2]})", ".as_int_lists[1]: expected a list, got number"},
      {R"({"as_float": "inf"})", ".as_float: expected a number, got string"},
      {R"({"as_float": null})", ".as_float: expected a number, got null"},
      {R"({"as_complex": {"real": 1}})", ".as_complex: 'imag' is missing"},
      {R"({"as_bool": 1})", ".as_bool: expected true or false, got number"},
      {R"({"as_string": ["a"]})", ".as_string: expected a string, got array"},
      {R"({"as_tensor": "x"})", ".as_tensor: expected an object, got string"},
      {R"({"as_tensors": [{"name": "x"}, {"name": 1}]})",
       ".as_tensors[1].name: expected a string, got number"},
      {R"({"as_nested_tensors": [[{}]]})", ".as_nested_tensors[0][0]: 'name' is missing"},
      {R"({"as_optional_tensors": [{"as_float": 1}]})",
       ".as_optional_tensors[0].as_float: an optional tensor of the kind 'as_float' is not "
       "supported"},
      {R"({"as_sym_int": {"as_expr": 1}})",
       ".as_sym_int.as_expr: a number of the kind 'as_expr' is not supported"},
      {R"({"as_sym_int": 1})", ".as_sym_int: expected an object with one key, got number"},
      {R"({"as_sym_ints": [{"as_name": 1}]})",
       ".as_sym_ints[0].as_name: expected a string, got number"},
      {R"({"as_scalar_type": "float"})",
       ".as_scalar_type: expected a whole number of 64 bits, got string"},
      {R"({"as_device": {"index": 0}})", ".as_device: 'type' is missing"},
      {R"({"as_device": {"type": "cuda", "index": "0"}})",
       ".as_device.index: expected a whole number of 64 bits, got string"},
      {R"({"as_graph": {"name": "g"}})", ".as_graph: 'graph' is missing"},
      {R"({"as_graph": {"name": "g", "graph": {"inputs": [], "outputs": []}}})",
       ".as_graph.graph: 'nodes' is missing"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(refusal_of_model(damaged("/graph_module/graph/nodes/1/inputs/0/arg", c.argument)),
              str("x: ", before, c.message));
  }
}

TEST(GraphDamage, OfTheDescriptionOfATensor) {
  const std::string before = "graph_module.graph.tensor_values.x";
  const struct {
    const char* pointer;
    const char* value;
    const char* message;
  } cases[] = {
      {"/sizes/0", R"({"as_bool": true})",
       ".sizes[0].as_bool: the size 'as_bool' is not supported"},
      {"/sizes/0", "3", ".sizes[0]: expected an object with one key, got number"},
      {"/sizes/0", R"({"as_expr": {}})", ".sizes[0].as_expr: 'expr_str' is missing"},
      {"/sizes/0", nullptr, ": 1 sizes, but 2 strides"},
      {"/strides/0", nullptr, ": 2 sizes, but 1 strides"},
      {"/strides", nullptr, ": 'strides' is missing"},
      {"/storage_offset", R"({"as_int": "0"})",
       ".storage_offset.as_int: expected a whole number of 64 bits, got string"},
      {"/dtype", "\"float32\"", ".dtype: expected a whole number of 64 bits, got string"},
      {"/device/type", "1", ".device.type: expected a string, got number"},
      {"/layout", nullptr, ": 'layout' is missing"},
      {"/requires_grad", "0", ".requires_grad: expected true or false, got number"},
  };
  for (const auto& c : cases) {
    const json model =
        damaged(std::string("/graph_module/graph/tensor_values/x") + c.pointer, c.value);
    EXPECT_EQ(refusal_of_model(model), str("x: ", before, c.message));
  }
}

TEST(GraphDamage, OfTheSignature) {
  expect_refusals(
      "/graph_module/signature",
      {{"", nullptr, "graph_module: 'signature' is missing"},
       {"/input_specs", nullptr, "graph_module.signature: 'input_specs' is missing"},
       {"/input_specs/3", nullptr,
        "graph_module.signature: describes 3 inputs and 1 outputs of a graph with 4 and 1"},
       {"/output_specs", "[]",
        "graph_module.signature: describes 4 inputs and 0 outputs of a graph with 4 and 1"},
       {"/input_specs/3", R"({"token": {"arg": {"name": "t"}}})",
        "graph_module.signature.input_specs[3].token: an input of the kind 'token' is not "
        "supported"},
       {"/input_specs/2",
        R"({"custom_obj": {"arg": {"name": "c", "class_fqn": "A"}, "custom_obj_name": "c"}})",
        "graph_module.signature.input_specs[2].custom_obj: an input of the kind 'custom_obj' is "
        "not supported"},
       {"/input_specs/0/parameter/parameter_name", nullptr,
        "graph_module.signature.input_specs[0].parameter: 'parameter_name' is missing"},
       {"/input_specs/0/parameter/arg", "{}",
        "graph_module.signature.input_specs[0].parameter.arg: 'name' is missing"},
       {"/input_specs/1/buffer/persistent", nullptr,
        "graph_module.signature.input_specs[1].buffer: 'persistent' is missing"},
       {"/input_specs/1/buffer/persistent", "null",
        "graph_module.signature.input_specs[1].buffer.persistent: expected true or false, got "
        "null"},
       {"/output_specs/0", R"({"token": {}})",
        "graph_module.signature.output_specs[0].token: an output of the kind 'token' is not "
        "supported"},
       {"/output_specs/0", R"({"gradient_to_parameter": {}})",
        "graph_module.signature.output_specs[0].gradient_to_parameter: an output of the kind "
        "'gradient_to_parameter' is not supported"},
       {"/output_specs/0", R"({"buffer_mutation": {"arg": {"name": "add"}}})",
        "graph_module.signature.output_specs[0].buffer_mutation: 'buffer_name' is missing"},
       {"/output_specs/0",
        R"({"buffer_mutation": {"arg": {"name": "add"}, "buffer_name": "mean"}})",
        "graph_module: the signature of forward() has 1 inputs and 1 outputs, the graph 1 and 0"}});
}

TEST(GraphDamage, OfTheStructureOfArguments) {
  const std::string two =
      json(spec_text(structure_spec("builtins.tuple", "null", {leaf_spec(), leaf_spec()}))).dump();
  expect_refusals(
      "/graph_module/module_call_graph",
      {{"", nullptr, "graph_module: 'module_call_graph' is missing"},
       {"", "[]", "graph_module: module_call_graph lacks the signature of the model"},
       {"/0/fqn", "\"layer\"", "graph_module: module_call_graph lacks the signature of the model"},
       {"/0/signature", "null", "graph_module: module_call_graph lacks the signature of the model"},
       {"/0/fqn", nullptr, "graph_module.module_call_graph[0]: 'fqn' is missing"},
       {"/0/signature/in_spec", nullptr,
        "graph_module.module_call_graph[0].signature: 'in_spec' is missing"},
       {"/0/signature/in_spec", "[1, {}]",
        "graph_module.module_call_graph[0].signature.in_spec: expected a string, got array"},
       {"/0/signature/in_spec", "\"{\"",
        "graph_module.module_call_graph[0].signature.in_spec: is not valid JSON (line 1, column "
        "2)"},
       {"/0/signature/in_spec", "\"[2, {}]\"",
        "graph_module.module_call_graph[0].signature.in_spec: expected a structure of version 1"},
       {"/0/signature/in_spec", "\"[1]\"",
        "graph_module.module_call_graph[0].signature.in_spec: expected a structure of version 1"},
       {"/0/signature/in_spec", "\"{}\"",
        "graph_module.module_call_graph[0].signature.in_spec: expected a structure of version 1"},
       {"/0/signature/in_spec", "\"[1, {}]\"",
        "graph_module.module_call_graph[0].signature.in_spec: 'children_spec' is missing"},
       {"/0/signature/in_spec", "\"[1, 5]\"",
        "graph_module.module_call_graph[0].signature.in_spec: expected an object, got number"},
       {"/0/signature/in_spec", two.c_str(),
        "graph_module: the signature of forward() has 2 inputs and 1 outputs, the graph 1 and 1"},
       {"/0/signature/out_spec", two.c_str(),
        "graph_module: the signature of forward() has 1 inputs and 2 outputs, the graph 1 and 1"},
       {"/0/signature/forward_arg_names", "[1]",
        "graph_module.module_call_graph[0].signature.forward_arg_names[0]: expected a string, got "
        "number"}});
  expect_refusals(
      "/graph_module/treespec_namedtuple_fields",
      {{"/net.Pair", "[]",
        "graph_module.treespec_namedtuple_fields.net.Pair: expected an object, got array"},
       {"/net.Pair/field_names", "[1]",
        "graph_module.treespec_namedtuple_fields.net.Pair.field_names[0]: expected a string, got "
        "number"}});
}

std::string refusal_of_structure(const json& structure, std::size_t leaves) {
  json model = small_model();
  set_results(model, structure, leaves);
  const std::string before = "x: graph_module.module_call_graph[0].signature.out_spec: ";
  const std::string message = refusal_of_model(model);
  return message.starts_with(before) ? message.substr(before.size()) : "elsewhere: " + message;
}

TEST(GraphDamage, OfAStructure) {
  const json leaf = leaf_spec();
  json parent_leaf = leaf;
  parent_leaf["children_spec"].push_back(leaf);
  json no_children = leaf;
  no_children["children_spec"] = nullptr;
  const json factory = {{"dict_context", {"a", "b"}}};
  const std::string brackets = std::string(100'000, '[') + std::string(100'000, ']');
  const struct {
    json structure;
    std::size_t leaves;
    const char* message;
  } cases[] = {
      {parent_leaf, 1, "a leaf has children"},
      {structure_spec("builtins.list", "null", {leaf, parent_leaf}), 2,
       "children_spec[1]: a leaf has children"},
      {no_children, 1, "children_spec: expected a list, got null"},
      {structure_spec("builtins.dict", R"(["a"])", {leaf, leaf}), 2,
       "a builtins.dict of 2 values has 1 names"},
      {structure_spec("builtins.dict", R"(["a", "b", "c"])", {leaf, leaf}), 2,
       "a builtins.dict of 2 values has 3 names"},
      {structure_spec("builtins.dict", "null", {leaf}), 1,
       "a builtins.dict of 1 values has 0 names"},
      {structure_spec("builtins.dict", nullptr, {leaf}), 1,
       "a builtins.dict of 1 values has 0 names"},
      {structure_spec("builtins.dict", R"(["a")", {leaf}), 1,
       "a builtins.dict of 1 values has 0 names"},
      {structure_spec("builtins.dict", R"({"a": 1})", {leaf}), 1,
       "a builtins.dict of 1 values has 0 names"},
      {structure_spec("builtins.dict", 5, {leaf}), 1, "a builtins.dict of 1 values has 0 names"},
      {structure_spec("builtins.dict", brackets, {leaf}), 1,
       "a builtins.dict of 1 values has 0 names"},
      {structure_spec("collections.defaultdict", factory, {leaf}), 1,
       "a collections.defaultdict of 1 values has 2 names"},
      {structure_spec("collections.defaultdict", R"({"dict_context": 5})", {leaf}), 1,
       "a collections.defaultdict of 1 values has 0 names"},
      {structure_spec("collections.namedtuple", "net.Triple", {leaf, leaf}), 2,
       "a collections.namedtuple of 2 values has 0 names"},
      {structure_spec("collections.namedtuple", "net.Pair", {leaf}), 1,
       "a collections.namedtuple of 1 values has 2 names"},
      {structure_spec("net.Output", "null", {leaf}), 1, "a net.Output of 1 values has 0 names"},
  };
  for (const auto& c : cases) EXPECT_EQ(refusal_of_structure(c.structure, c.leaves), c.message);
}

// Structures are walked recursively, and lead to names that consist of all names above.
TEST(GraphDamage, OfAStructureThatIsTooLarge) {
  const auto nested = [](int levels) {
    json structure = leaf_spec();
    for (int i = 0; i < levels; ++i)
      structure = structure_spec("builtins.list", "null", {structure});
    return structure;
  };
  EXPECT_EQ(refusal_of_structure(nested(64), 1), "elsewhere: nothing was thrown");
  std::string way;
  for (int i = 0; i < 65; ++i) way += std::string(i == 0 ? "" : ".") + "children_spec[0]";
  EXPECT_EQ(refusal_of_structure(nested(65), 1), way + ": is nested too deeply");
  EXPECT_EQ(refusal_of_structure(nested(200), 1), "is nested too deeply")
      << "the JSON itself is too deep";

  const auto named = [](std::size_t outer, std::size_t inner) {
    const auto context = [](std::size_t bytes) {
      return json::array({std::string(bytes, 'n')}).dump();
    };
    return structure_spec("builtins.dict", context(outer),
                          {structure_spec("builtins.dict", context(inner), {leaf_spec()})});
  };
  EXPECT_EQ(refusal_of_structure(named(500, 500), 1), "elsewhere: nothing was thrown");
  EXPECT_EQ(refusal_of_structure(named(500, 501), 1),
            "children_spec[0].children_spec[0]: its name has more than 1000 bytes");
  EXPECT_EQ(refusal_of_structure(named(1001, 1), 1),
            "children_spec[0]: its name has more than 1000 bytes");
  json model = small_model();
  model["graph_module"]["treespec_namedtuple_fields"]["net.Long"]["field_names"] =
      json::array({std::string(100'000, 'n')});
  const json wide = structure_spec("collections.namedtuple", "net.Long", {leaf_spec()});
  set_results(model, wide, 1);
  EXPECT_EQ(refusal_of_model(model),
            "x: graph_module.module_call_graph[0].signature.out_spec: children_spec[0]: its name "
            "has more than 1000 bytes")
      << "a name that many structures share is copied for each";
}

TEST(GraphDamage, OfTheNamesOfValues) {
  const std::string where = "node 1 (torch.ops.aten.mul.Tensor at net.py:12: x = x * self.scale)";
  const struct {
    const char* pointer;
    const char* value;
    std::string message;
  } cases[] = {
      {"/nodes/1/inputs/0/arg", R"({"as_tensor": {"name": "ghost"}})",
       "'ghost' is used by " + where + ", but not defined before"},
      {"/nodes/1/inputs/0/arg", R"({"as_tensor": {"name": ""}})",
       "'' is used by " + where + ", but not defined before"},
      {"/nodes/1/inputs/0/arg", R"({"as_tensor": {"name": "add"}})",
       "'add' is used by " + where + ", but not defined before"},
      {"/nodes/1/inputs/0/arg", R"({"as_tensor": {"name": "mul"}})",
       "'mul' is used by " + where + ", but not defined before"},
      {"/nodes/1/inputs/0/arg", R"({"as_sym_ints": [{"as_int": 1}, {"as_name": "s0"}]})",
       "'s0' is used by " + where + ", but not defined before"},
      {"/nodes/1/inputs/0/arg", R"({"as_nested_tensors": [[], [{"name": "ghost"}]]})",
       "'ghost' is used by " + where + ", but not defined before"},
      {"/nodes/2/outputs/0", R"({"as_tensor": {"name": "mul"}})",
       "'mul' is defined a second time by node 2 (torch.ops.aten.add.Tensor)"},
      {"/nodes/2/outputs/0", R"({"as_tensors": [{"name": "add"}, {"name": "add"}]})",
       "'add' is defined a second time by node 2 (torch.ops.aten.add.Tensor)"},
      {"/nodes/2/outputs/0", R"({"as_sym_int": {"as_name": "x"}})",
       "'x' is defined a second time by node 2 (torch.ops.aten.add.Tensor)"},
      {"/inputs/3", R"({"as_tensor": {"name": "b_mean"}})",
       "'b_mean' is defined a second time by the inputs"},
      {"/outputs/0", R"({"as_tensor": {"name": "ghost"}})",
       "'ghost' is used by the outputs, but not defined before"},
      {"/nodes/2/outputs", "[]", "'add' is used by the outputs, but not defined before"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(refusal_of_model(damaged(std::string("/graph_module/graph") + c.pointer, c.value)),
              "x: " + c.message);
  }
}

TEST(GraphDamage, OfTheNamesOfTensors) {
  const std::pair<const char*, const char*> cases[] = {
      {"\"a.mean\"", "nothing was thrown"},
      {"\"scale\"", "x: two tensors have the name 'scale'"},
      {"\"shift\"", "x: two tensors have the name 'shift'"},
      {"\"\"", "x: a tensor has the name ''"},
      {"\".mean\"", "x: a tensor has the name '.mean'"},
      {"\"mean.\"", "x: a tensor has the name 'mean.'"},
      {"\"a..mean\"", "x: a tensor has the name 'a..mean'"},
  };
  for (const auto& [name, message] : cases) {
    EXPECT_EQ(
        refusal_of_model(damaged("/graph_module/signature/input_specs/1/buffer/buffer_name", name)),
        message);
  }
}

TEST(GraphDamage, OfTheInputsOfTheSignature) {
  expect_refusals(
      "/graph_module/signature/input_specs",
      {{"/0/parameter/arg/name", "\"b_mean\"",
        "input 0 of the graph is the tensor 'p_scale', but the signature describes the tensor "
        "'b_mean'"},
       {"/3/user_input/arg", R"({"as_sym_int": {"as_name": "x"}})",
        "input 3 of the graph is the tensor 'x', but the signature describes the number 'x'"},
       {"/3", R"({"constant_input": {"name": "x", "value": {"as_int": 1}}})",
        "input 3 of the graph is the tensor 'x', but the signature describes a constant"}});
}

TEST(GraphDamage, OfThePathsOfModules) {
  const std::pair<const char*, const char*> cases[] = {
      {"layer1.0", nullptr}, {"", nullptr}, {"a..b", "a..b"},
      {".a", ".a"},          {"a.", "a."},  {".", "."},
  };
  for (const auto& [path, refused] : cases) {
    json model = small_model();
    json& node = model["graph_module"]["graph"]["nodes"][2];
    node["metadata"]["nn_module_stack"] = str("L__self__,,net.Net;L__self__a,", path, ",net.A");
    EXPECT_EQ(refusal_of_model(model),
              refused == nullptr ? "nothing was thrown"
                                 : str("x: node 2 (torch.ops.aten.add.Tensor) belongs to a module "
                                       "with the name '",
                                       refused, "'"));
  }
}

TEST(GraphDamage, OfTheTargetsOfMutations) {
  const struct {
    const char* spec;
    const char* target;  // null: it exists
  } cases[] = {
      {R"({"buffer_mutation": {"arg": {"name": "mul"}, "buffer_name": "mean"}})", nullptr},
      {R"({"buffer_mutation": {"arg": {"name": "mul"}, "buffer_name": "variance"}})", "variance"},
      {R"({"buffer_mutation": {"arg": {"name": "mul"}, "buffer_name": "b_mean"}})", "b_mean"},
      {R"({"buffer_mutation": {"arg": {"name": "mul"}, "buffer_name": "x"}})", "x"},
      {R"({"user_input_mutation": {"arg": {"name": "mul"}, "user_input_name": "x"}})", nullptr},
      {R"({"user_input_mutation": {"arg": {"name": "mul"}, "user_input_name": "mean"}})", "mean"},
  };
  for (const auto& c : cases) {
    json model = small_model();
    model["graph_module"]["graph"]["outputs"].push_back(tensor_argument("mul"));
    model["graph_module"]["signature"]["output_specs"].push_back(json::parse(c.spec));
    EXPECT_EQ(refusal_of_model(model), c.target == nullptr
                                           ? "nothing was thrown"
                                           : str("x: an output is written to '", c.target,
                                                 "', which is no input of the graph"));
  }
}

TEST(GraphDamage, OfAGraphInAGraph) {
  const auto with_inner = [](const json& inner) {
    json model = small_model();
    model["graph_module"]["graph"]["nodes"].push_back(
        call("torch.ops.higher_order.cond", {inner}, {}));
    return model;
  };
  const json neg =
      call("torch.ops.aten.neg.default", {tensor_argument("x")}, {tensor_argument("neg")});
  const json x = tensor_argument("x"), result = tensor_argument("neg");
  EXPECT_EQ(refusal_of_model(with_inner(graph_argument({x}, {neg}, {result}))),
            "nothing was thrown");
  EXPECT_EQ(refusal_of_model(with_inner(graph_argument({}, {neg}, {result}))),
            "x: 'x' is used by node 0 (torch.ops.aten.neg.default), but not defined before")
      << "the x of the graph around it is another";
  EXPECT_EQ(refusal_of_model(with_inner(graph_argument({x}, {neg, neg}, {result}))),
            "x: 'neg' is defined a second time by node 1 (torch.ops.aten.neg.default)");
  json broken = graph_argument({x}, {neg}, {result});
  broken["as_graph"]["graph"]["nodes"][0].erase("target");
  EXPECT_EQ(refusal_of_model(with_inner(broken)),
            "x: graph_module.graph.nodes[3].inputs[0].arg.as_graph.graph.nodes[0]: 'target' is "
            "missing");

  // Each graph in a graph takes seven levels of the JSON's 300.
  json deep = graph_argument({x}, {neg}, {result});
  for (int i = 0; i < 30; ++i) {
    deep = graph_argument({}, {call("torch.ops.higher_order.wrap", {deep}, {})}, {});
  }
  EXPECT_EQ(refusal_of_model(with_inner(deep)), "nothing was thrown");
  for (int i = 0; i < 12; ++i) {
    deep = graph_argument({}, {call("torch.ops.higher_order.wrap", {deep}, {})}, {});
  }
  EXPECT_EQ(refusal_of_model(with_inner(deep)), "x: is nested too deeply");
}

}  // namespace
}  // namespace lockstep::testing_support
