// What is read from the JSON of an exported program. Damage is in graph_damage_test.cpp.
#include <lockstep/program/graph/read_graph.h>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <lockstep/core/error.h>
#include <tests/program/pt2_bytes.h>
#include <tests/support/messages.h>

namespace lockstep::testing_support {
namespace {

using nlohmann::json;
using program::Argument;
using program::ExportedGraph;
using program::read_graph;
using program::Structure;

ExportedGraph read_model(const json& model) { return read_graph(model.dump(), "x"); }

// An argument as text: "tensor x", "[1, number n]".
std::string text_of(const Argument& argument) {
  struct Visitor {
    std::string operator()(program::None) const { return "none"; }
    std::string operator()(const program::TensorName& x) const { return "tensor " + x.name; }
    std::string operator()(const program::NumberName& x) const { return "number " + x.name; }
    std::string operator()(bool x) const { return x ? "true" : "false"; }
    std::string operator()(std::int64_t x) const { return str(x); }
    std::string operator()(double x) const { return str("float ", x); }
    std::string operator()(const std::string& x) const { return '\'' + x + '\''; }
    std::string operator()(program::ComplexNumber x) const {
      return str(x.real, "+", x.imaginary, "j");
    }
    std::string operator()(program::ScalarTypeCode x) const { return str("dtype ", x.code); }
    std::string operator()(program::LayoutCode x) const { return str("layout ", x.code); }
    std::string operator()(program::MemoryFormatCode x) const { return str("format ", x.code); }
    std::string operator()(const program::DeviceName& x) const {
      return x.index ? str(x.type, ':', *x.index) : x.type;
    }
    std::string operator()(const program::Subgraph& x) const {
      return str("graph ", x.name, " of ", x.graph->nodes.size());
    }
    std::string operator()(const program::ArgumentList& x) const {
      std::string text;
      for (const Argument& item : x.items) text += (text.empty() ? "" : ", ") + text_of(item);
      return '[' + text + ']';
    }
  };
  return std::visit(Visitor(), argument.value);
}

// A structure as text: "{a: *, b: (*, *)}", with the class of an object in front.
std::string text_of(const Structure& structure) {
  using Kind = Structure::Kind;
  if (structure.kind == Kind::kLeaf) return "*";
  std::string text;
  for (std::size_t i = 0; i < structure.children.size(); ++i) {
    if (i != 0) text += ", ";
    if (!structure.names.empty()) text += structure.names[i] + ": ";
    text += text_of(structure.children[i]);
  }
  if (structure.kind == Kind::kList) return '[' + text + ']';
  if (structure.kind == Kind::kTuple) return '(' + text + ')';
  return (structure.kind == Kind::kObject ? structure.type : "") + '{' + text + '}';
}

TEST(ReadGraph, HasTheNodesInOrder) {
  const ExportedGraph program = read_model(small_model());
  EXPECT_EQ(program.torch_version, "2.13.0");
  const auto& nodes = program.graph.nodes;
  ASSERT_EQ(nodes.size(), 3U);
  EXPECT_EQ(nodes[0].target, "torch.ops.aten.sym_size.int");
  EXPECT_EQ(nodes[1].target, "torch.ops.aten.mul.Tensor");
  EXPECT_EQ(nodes[1].name, "mul");
  ASSERT_EQ(nodes[1].inputs.size(), 2U);
  EXPECT_EQ(nodes[1].inputs[0].name, "self");
  EXPECT_EQ(nodes[1].inputs[1].name, "other");
  EXPECT_EQ(text_of(nodes[1].inputs[1].argument), "tensor p_scale");
  ASSERT_EQ(nodes[0].outputs.size(), 1U);
  EXPECT_EQ(text_of(nodes[0].outputs[0]), "number sym_size_int");
  ASSERT_EQ(program.graph.inputs.size(), 4U);
  EXPECT_EQ(text_of(program.graph.inputs[3]), "tensor x");
  ASSERT_EQ(program.graph.outputs.size(), 1U);
  EXPECT_EQ(text_of(program.graph.outputs[0]), "tensor add");
}

TEST(ReadGraph, KnowsWhereACallWasMade) {
  const auto nodes = read_model(small_model()).graph.nodes;
  EXPECT_EQ(nodes[0].source, "runtime_assert.py:24") << "no other line is known";
  EXPECT_EQ(nodes[1].source, "net.py:12: x = x * self.scale") << "not the line in PyTorch";
  EXPECT_EQ(nodes[2].source, "");
  EXPECT_EQ(nodes[0].module_path, "") << "PyTorch's text for no module";
  EXPECT_EQ(nodes[1].module_class, "net.Layer");
  EXPECT_EQ(nodes[1].module_path, "_layer.0") << "the innermost module, called a second time";
  EXPECT_EQ(nodes[2].module_path, "");
}

TEST(ReadGraph, KnowsTheClassesOfAllModulesAroundACall) {
  json model = small_model();
  model["graph_module"]["graph"]["nodes"][2]["metadata"]["nn_module_stack"] =
      "L__self__,,net.Net;L__self__a,a,net.A;L__self__a.b@1,a.b,net.B";
  const auto classes = read_model(model).graph.module_classes;
  EXPECT_EQ(classes.at(""), "net.Net");
  EXPECT_EQ(classes.at("a"), "net.A");
  EXPECT_EQ(classes.at("a.b"), "net.B");
  EXPECT_EQ(classes.at("_layer.0"), "net.Layer");
}

TEST(ReadGraph, KnowsTheClassesOfModulesInRegions) {
  json neg = call("torch.ops.aten.neg.default", {tensor_argument("a")}, {tensor_argument("b")});
  neg["metadata"]["nn_module_stack"] = "L__self__,,net.Other;L__self__a,a,net.A";
  json region = graph_argument({tensor_argument("a")}, {neg}, {tensor_argument("b")});
  const json wrap =
      call("torch.ops.higher_order.wrap", {region, tensor_argument("a")}, {tensor_argument("b")});
  region = graph_argument({tensor_argument("a")}, {wrap}, {tensor_argument("b")});
  json model = small_model();
  json& nodes = model["graph_module"]["graph"]["nodes"];
  nodes[2]["metadata"]["nn_module_stack"] = "L__self__,,net.Net";
  nodes.push_back(call("torch.ops.higher_order.tag_activation_checkpoint",
                       {region, tensor_argument("add")}, {tensor_argument("c")}));
  const auto classes = read_model(model).graph.module_classes;
  EXPECT_EQ(classes.at("a"), "net.A") << "a region in a region";
  EXPECT_EQ(classes.at(""), "net.Net") << "the calls around the region come first";
}

TEST(ReadGraph, ReadsTracesOfAnyForm) {
  const std::string of_torch =
      "File \"/a/torch/nn/modules/linear.py\", line 134, in forward\n"
      "    return F.linear(input, self.weight, self.bias)";
  const std::pair<std::string, std::string> cases[] = {
      {"", ""},
      {"no frame at all", ""},
      {of_torch, "linear.py:134: return F.linear(input, self.weight, self.bias)"},
      {of_torch + "\n  File \"a.py\", line 3, in f\n    y = x", "a.py:3: y = x"},
      {"File \"a.py\", line 3, in f\n    y = x\n  File \"b.py\", line 4, in g\n    z = y",
       "b.py:4: z = y"},
      {"File \"a.py\", line 3, in f\n  File \"b.py\", line 4, in g", "b.py:4"},
      {"File \"a.py\", line 3", "a.py:3"},
      {"File \"a.py\", line ", "a.py:"},
      {"File \"a.py\"", ""},
      {"\", line 3 File \"a.py", "a.py:3 File \"a.py"},
      {"File \"a\tb.py\", line 3, in f\n    \x7f", "a?b.py:3: ?"},
      {"File \"a.py\", line 3, in f\n    " + std::string(1000, 'y'),
       "a.py:3: " + std::string(72, 'y')},
  };
  for (const auto& [trace, source] : cases) {
    json model = small_model();
    model["graph_module"]["graph"]["nodes"][2]["metadata"]["stack_trace"] = trace;
    EXPECT_EQ(read_model(model).graph.nodes[2].source, source) << trace;
  }
}

TEST(ReadGraph, ReadsStacksOfModulesOfAnyForm) {
  const std::pair<const char*, const char*> cases[] = {
      {"", ""},
      {"L__self__,,net.Net", ""},
      {"L__self__,,net.Net;L__self__a,a,net.A", "a"},
      {"L__self__,,net.Net;L__self__a,a,net.A;L__self__a.b,a.b,net.B", "a.b"},
      {"1234,,net.Net;5678@2,a,net.A", "a"},
      {"no comma", ""},
      {"a,b", "b"},
      {"a,b;", ""},
  };
  for (const auto& [stack, path] : cases) {
    json model = small_model();
    model["graph_module"]["graph"]["nodes"][2]["metadata"]["nn_module_stack"] = stack;
    EXPECT_EQ(read_model(model).graph.nodes[2].module_path, path) << stack;
  }
}

TEST(ReadGraph, DescribesTensors) {
  const auto tensors = read_model(small_model()).graph.tensors;
  ASSERT_TRUE(tensors.contains("x") && tensors.contains("p_scale"));
  const program::TensorDescription& x = tensors.at("x");
  EXPECT_EQ(x.dtype.code, 7);
  ASSERT_EQ(x.sizes.size(), 2U);
  EXPECT_EQ(x.sizes[0].expression, "Symbol('s0')");
  EXPECT_EQ(x.sizes[1].expression, "");
  EXPECT_EQ(x.sizes[1].value, 3);
  ASSERT_EQ(x.strides.size(), 2U);
  EXPECT_EQ(x.strides[0].value, 3);
  EXPECT_EQ(x.device, (program::DeviceName{.type = "cpu"}));
  EXPECT_EQ(x.layout.code, 7);
  EXPECT_FALSE(x.requires_grad);
  EXPECT_TRUE(tensors.at("p_scale").requires_grad);
}

TEST(ReadGraph, KnowsWhatInputsAndOutputsAre) {
  json model = small_model();
  json& module = model["graph_module"];
  module["graph"]["inputs"].push_back({{"as_int", 5}});
  json& inputs = module["signature"]["input_specs"];
  inputs[1]["buffer"]["persistent"] = false;
  inputs.push_back({{"constant_input", {{"name", "n"}, {"value", {{"as_int", 5}}}}}});
  json& signature = module["module_call_graph"][0]["signature"];
  signature["in_spec"] =
      spec_text(structure_spec("builtins.tuple", "null",
                               {structure_spec("builtins.tuple", "null", {leaf_spec()}),
                                structure_spec("builtins.dict", "[\"n\"]", {leaf_spec()})}));
  for (const char* name : {"mul", "mul", "x"}) {
    module["graph"]["outputs"].push_back(tensor_argument(name));
  }
  json& outputs = module["signature"]["output_specs"];
  outputs[0] = {{"loss_output", {{"arg", {{"name", "add"}}}}}};
  outputs.push_back({{"buffer_mutation", {{"arg", {{"name", "mul"}}}, {"buffer_name", "mean"}}}});
  outputs.push_back(
      {{"parameter_mutation", {{"arg", {{"name", "mul"}}}, {"parameter_name", "scale"}}}});
  outputs.push_back(
      {{"user_input_mutation", {{"arg", {{"name", "x"}}}, {"user_input_name", "x"}}}});

  const ExportedGraph program = read_model(model);
  using In = program::InputSpec::Kind;
  const struct {
    In kind;
    const char* argument;
    const char* target;
  } expected_inputs[] = {{In::kParameter, "tensor p_scale", "scale"},
                         {In::kBuffer, "tensor b_mean", "mean"},
                         {In::kConstant, "tensor c_shift", "shift"},
                         {In::kUser, "tensor x", ""},
                         {In::kFixed, "5", "n"}};
  ASSERT_EQ(program.inputs.size(), std::size(expected_inputs));
  for (std::size_t i = 0; i < program.inputs.size(); ++i) {
    EXPECT_EQ(program.inputs[i].kind, expected_inputs[i].kind) << i;
    EXPECT_EQ(text_of(program.inputs[i].argument), expected_inputs[i].argument);
    EXPECT_EQ(program.inputs[i].target, expected_inputs[i].target);
    EXPECT_EQ(program.inputs[i].persistent, i != 1);
  }
  using Out = program::OutputSpec::Kind;
  const struct {
    Out kind;
    const char* argument;
    const char* target;
  } expected_outputs[] = {{Out::kUser, "tensor add", ""},
                          {Out::kMutation, "tensor mul", "mean"},
                          {Out::kMutation, "tensor mul", "scale"},
                          {Out::kUserMutation, "tensor x", "x"}};
  ASSERT_EQ(program.outputs.size(), std::size(expected_outputs));
  for (std::size_t i = 0; i < program.outputs.size(); ++i) {
    EXPECT_EQ(program.outputs[i].kind, expected_outputs[i].kind) << i;
    EXPECT_EQ(text_of(program.outputs[i].argument), expected_outputs[i].argument);
    EXPECT_EQ(program.outputs[i].target, expected_outputs[i].target);
  }
  EXPECT_EQ(text_of(program.arguments), "((*), {n: *})");
  EXPECT_EQ(program.argument_names, std::vector<std::string>{"x"});
}

TEST(ReadGraph, HasTheRangesOfSymbols) {
  const auto ranges = read_model(small_model()).ranges;
  EXPECT_EQ(ranges.at("s0").least, 2);
  EXPECT_EQ(ranges.at("s0").most, 64);
  EXPECT_EQ(ranges.at("u0").least, std::nullopt);
  EXPECT_EQ(ranges.at("u0").most, std::nullopt);
}

TEST(ReadGraph, ReadsArgumentsOfAllKinds) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"as_none": true})", "none"},
      {R"({"as_none": []})", "none"},
      {R"({"as_tensor": {"name": "x"}})", "tensor x"},
      {R"({"as_tensors": [{"name": "x"}, {"name": "mul"}]})", "[tensor x, tensor mul]"},
      {R"({"as_tensors": []})", "[]"},
      {R"({"as_optional_tensor": {"as_none": true}})", "none"},
      {R"({"as_optional_tensor": {"as_tensor": {"name": "x"}}})", "tensor x"},
      {R"({"as_optional_tensors": [{"as_none": true}, {"as_tensor": {"name": "x"}}]})",
       "[none, tensor x]"},
      {R"({"as_nested_tensors": [[{"name": "x"}], []]})", "[[tensor x], []]"},
      {R"({"as_int": -3})", "-3"},
      {R"({"as_int": 9223372036854775807})", "9223372036854775807"},
      {R"({"as_int": -9223372036854775808})", "-9223372036854775808"},
      {R"({"as_ints": [1, 2]})", "[1, 2]"},
      {R"({"as_int_lists": [[1], [2, 3]]})", "[[1], [2, 3]]"},
      {R"({"as_sym_int": {"as_name": "sym_size_int"}})", "number sym_size_int"},
      {R"({"as_sym_int": {"as_int": 4}})", "4"},
      {R"({"as_sym_ints": [{"as_int": 1}, {"as_name": "sym_size_int"}]})",
       "[1, number sym_size_int]"},
      {R"({"as_float": 0.5})", "float 0.5"},
      {R"({"as_float": 2})", "float 2"},
      {R"({"as_float": "Infinity"})", "float inf"},
      {R"({"as_float": "-Infinity"})", "float -inf"},
      {R"({"as_floats": [1.5, "Infinity"]})", "[float 1.5, float inf]"},
      {R"({"as_sym_float": {"as_float": "-Infinity"}})", "float -inf"},
      {R"({"as_sym_floats": [{"as_name": "sym_size_int"}]})", "[number sym_size_int]"},
      {R"({"as_bool": true})", "true"},
      {R"({"as_bools": [true, false]})", "[true, false]"},
      {R"({"as_sym_bool": {"as_bool": false}})", "false"},
      {R"({"as_sym_bools": [{"as_bool": true}]})", "[true]"},
      {R"({"as_string": "mean"})", "'mean'"},
      {R"({"as_strings": ["a", "b"]})", "['a', 'b']"},
      {R"({"as_complex": {"real": 1.5, "imag": "-Infinity"}})", "1.5+-infj"},
      {R"({"as_scalar_type": 13})", "dtype 13"},
      {R"({"as_memory_format": 2})", "format 2"},
      {R"({"as_layout": 7})", "layout 7"},
      {R"({"as_device": {"type": "cuda", "index": 1}})", "cuda:1"},
      {R"({"as_device": {"type": "cpu", "index": null}})", "cpu"},
      {R"({"as_device": {"type": "cpu"}})", "cpu"},
  };
  for (const auto& [argument, text] : cases) {
    json model = small_model();
    model["graph_module"]["graph"]["nodes"][2]["inputs"][0]["arg"] = json::parse(argument);
    EXPECT_EQ(text_of(read_model(model).graph.nodes[2].inputs[0].argument), text) << argument;
  }
  json model = small_model();
  model["graph_module"]["graph"]["nodes"][2]["inputs"][0]["arg"] = {{"as_float", "NaN"}};
  const Argument argument = read_model(model).graph.nodes[2].inputs[0].argument;
  ASSERT_TRUE(std::holds_alternative<double>(argument.value));
  EXPECT_TRUE(std::isnan(std::get<double>(argument.value)));
}

TEST(ReadGraph, ReadsStructuresOfAllClasses) {
  const json leaf = leaf_spec();
  const json factory = {{"default_factory_module", "builtins"},
                        {"default_factory_name", "int"},
                        {"dict_context", {"p", 3}}};
  const struct {
    json structure;
    std::size_t leaves;
    const char* text;
  } cases[] = {
      {leaf, 1, "*"},
      {structure_spec("builtins.tuple", "null", {}), 0, "()"},
      {structure_spec("builtins.tuple", "null", {leaf, leaf}), 2, "(*, *)"},
      {structure_spec("builtins.tuple", nullptr, {leaf}), 1, "(*)"},
      {structure_spec("builtins.list", "null", {leaf}), 1, "[*]"},
      {structure_spec("collections.deque", "5", {leaf}), 1, "[*]"},
      {structure_spec("builtins.dict", R"(["a", "b"])", {leaf, leaf}), 2, "{a: *, b: *}"},
      {structure_spec("builtins.dict", R"([3, true, null, 0.5])", {leaf, leaf, leaf, leaf}), 4,
       "{3: *, true: *, null: *, 0.5: *}"},
      {structure_spec("builtins.dict", "[]", {}), 0, "{}"},
      {structure_spec("collections.OrderedDict", R"(["a"])", {leaf}), 1, "{a: *}"},
      {structure_spec("collections.defaultdict", factory, {leaf, leaf}), 2, "{p: *, 3: *}"},
      {structure_spec("collections.namedtuple", "net.Pair", {leaf, leaf}), 2,
       "collections.namedtuple{left: *, right: *}"},
      // A ModelOutput of Hugging Face, and a class of torch.export.register_dataclass().
      {structure_spec("transformers.Output", R"(["loss", "logits"])", {leaf, leaf}), 2,
       "transformers.Output{loss: *, logits: *}"},
      {structure_spec("net.Output", R"([["loss"], ["logits", "states"]])", {leaf}), 1,
       "net.Output{loss: *}"},
      {structure_spec("net.Output", R"([[], ["logits"]])", {}), 0, "net.Output{}"},
      {structure_spec("builtins.list", "null",
                      {structure_spec("builtins.dict", R"(["a"])",
                                      {structure_spec("builtins.tuple", "null", {leaf, leaf})}),
                       leaf}),
       3, "[{a: (*, *)}, *]"},
  };
  for (const auto& c : cases) {
    json model = small_model();
    set_results(model, c.structure, c.leaves);
    EXPECT_EQ(text_of(read_model(model).results), c.text);
  }
}

// A graph in a graph has names of its own.
TEST(ReadGraph, ReadsGraphsInGraphs) {
  const ExportedGraph program = read_model(large_model());
  ASSERT_EQ(program.graph.nodes.size(), 5U);
  const auto& inputs = program.graph.nodes[4].inputs;
  ASSERT_EQ(inputs.size(), 3U);
  EXPECT_EQ(inputs[1].name, "");
  EXPECT_EQ(text_of(inputs[1].argument), "graph graph_0 of 1");
  const auto& inner = *std::get<program::Subgraph>(inputs[1].argument.value).graph;
  EXPECT_EQ(text_of(inner.inputs.at(0)), "tensor add");
  EXPECT_EQ(inner.nodes.at(0).target, "torch.ops.aten.neg.default");
  EXPECT_EQ(text_of(inner.outputs.at(0)), "tensor neg");
  EXPECT_EQ(text_of(program.results),
            "{list: [*], pair: collections.namedtuple{left: *, right: *}, ordered: {q: *}, "
            "default: {p: *, 3: *}, object: net.Output{loss: *}}");
}

TEST(ReadGraph, IgnoresFieldsThatItDoesNotKnow) {
  json model = small_model();
  model["schema_version"]["minor"] = 99;
  model["new_field"] = {1, 2, 3};
  model["graph_module"]["graph"]["nodes"][1]["new_field"] = "any";
  model["graph_module"]["module_call_graph"].push_back({{"fqn", "other"}, {"new_field", 1}});
  EXPECT_EQ(read_model(model).graph.nodes.size(), 3U);
  model.erase("torch_version");
  EXPECT_EQ(read_model(model).torch_version, "");
}

TEST(ReadGraph, ReadsPayloads) {
  const json config = {
      {"config",
       {{"a.weight",
         {{"path_name", "weight_0"}, {"use_pickle", false}, {"tensor_meta", tensor_meta({2, 3})}}},
        {"b",
         {{"path_name", "weight_1"}, {"use_pickle", true}, {"tensor_meta", tensor_meta({})}}}}}};
  const auto payloads = program::read_payloads(config.dump(), "x");
  ASSERT_EQ(payloads.size(), 2U);
  EXPECT_EQ(payloads.at("a.weight").path, "weight_0");
  EXPECT_FALSE(payloads.at("a.weight").is_pickled);
  EXPECT_TRUE(payloads.at("b").is_pickled);
  const auto& sizes = payloads.at("a.weight").tensor.sizes;
  ASSERT_EQ(sizes.size(), 2U);
  EXPECT_EQ(sizes[1].value, 3);
}

TEST(ReadGraph, RefusesOtherPayloads) {
  const auto refusal = [](const std::string& text) {
    return message_of<CheckpointError>([&] { program::read_payloads(text, "x"); });
  };
  EXPECT_EQ(refusal("{}"), "x: 'config' is missing");
  EXPECT_EQ(refusal("[]"), "x: expected an object, got array");
  EXPECT_EQ(refusal("{"), "x: is not valid JSON (line 1, column 2)");
  EXPECT_EQ(refusal(R"({"config": []})"), "x: config: expected an object, got array");
  EXPECT_EQ(refusal(R"({"config": {"a": {"use_pickle": false}}})"),
            "x: config.a: 'path_name' is missing");
  EXPECT_EQ(refusal(R"({"config": {"a": {"path_name": "p", "use_pickle": 0}}})"),
            "x: config.a.use_pickle: expected true or false, got number");
  EXPECT_EQ(
      refusal(R"({"config": {"a": {"path_name": "p", "use_pickle": true, "tensor_meta": null}}})"),
      "x: config.a: 'a' is an object, but only tensors are supported");
  EXPECT_EQ(refusal(R"({"config": {"a": {}, "a": {}}})"), "x: repeats 'a'");
}

}  // namespace
}  // namespace lockstep::testing_support
