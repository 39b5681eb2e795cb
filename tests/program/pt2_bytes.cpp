#include <tests/program/pt2_bytes.h>

#include <algorithm>
#include <stdexcept>

#include <lockstep/formats/torch_file.h>
#include <lockstep/formats/torch_file/zip_archive.h>
#include <tests/support/data_bytes.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using nlohmann::json;

constexpr const char* kSmallModel = R"json({
  "schema_version": {"major": 8, "minor": 20},
  "torch_version": "2.13.0",
  "opset_version": {"aten": 10},
  "verifiers": ["TRAINING"],
  "guards_code": [],
  "range_constraints": {"s0": {"min_val": 2, "max_val": 64},
                        "u0": {"min_val": null, "max_val": null}},
  "graph_module": {
    "graph": {
      "inputs": [{"as_tensor": {"name": "p_scale"}}, {"as_tensor": {"name": "b_mean"}},
                 {"as_tensor": {"name": "c_shift"}}, {"as_tensor": {"name": "x"}}],
      "outputs": [{"as_tensor": {"name": "add"}}],
      "nodes": [
        {"target": "torch.ops.aten.sym_size.int", "name": "sym_size_int",
         "inputs": [{"name": "self", "arg": {"as_tensor": {"name": "x"}}, "kind": 1},
                    {"name": "dim", "arg": {"as_int": 0}, "kind": 1}],
         "outputs": [{"as_sym_int": {"as_name": "sym_size_int"}}],
         "metadata": {}, "is_hop_single_tensor_return": null},
        {"target": "torch.ops.aten.mul.Tensor", "name": "mul",
         "inputs": [{"name": "self", "arg": {"as_tensor": {"name": "x"}}, "kind": 1},
                    {"name": "other", "arg": {"as_tensor": {"name": "p_scale"}}, "kind": 1}],
         "outputs": [{"as_tensor": {"name": "mul"}}],
         "metadata": {}, "is_hop_single_tensor_return": null},
        {"target": "torch.ops.aten.add.Tensor", "name": "add",
         "inputs": [{"name": "self", "arg": {"as_tensor": {"name": "mul"}}, "kind": 1},
                    {"name": "other", "arg": {"as_tensor": {"name": "c_shift"}}, "kind": 1}],
         "outputs": [{"as_tensor": {"name": "add"}}],
         "metadata": {}, "is_hop_single_tensor_return": null}],
      "tensor_values": {},
      "sym_int_values": {"sym_size_int": {"as_expr": {"expr_str": "Symbol('s0')"}}},
      "sym_bool_values": {}, "sym_float_values": {}, "custom_obj_values": {},
      "is_single_tensor_return": false},
    "signature": {
      "input_specs": [
        {"parameter": {"arg": {"name": "p_scale"}, "parameter_name": "scale"}},
        {"buffer": {"arg": {"name": "b_mean"}, "buffer_name": "mean", "persistent": true}},
        {"tensor_constant": {"arg": {"name": "c_shift"}, "tensor_constant_name": "shift"}},
        {"user_input": {"arg": {"as_tensor": {"name": "x"}}}}],
      "output_specs": [{"user_output": {"arg": {"as_tensor": {"name": "add"}}}}]},
    "module_call_graph": [
      {"fqn": "", "signature": {"inputs": [], "outputs": [], "in_spec": "", "out_spec": "",
                                "forward_arg_names": ["x"]}},
      {"fqn": "layer", "signature": null}],
    "metadata": {},
    "treespec_namedtuple_fields": {"net.Pair": {"field_names": ["left", "right"]}}}
})json";

constexpr const char* kTraceOfTorch =
    "File \"torch/fx/passes/runtime_assert.py\", line 24, in insert_asserts";
constexpr const char* kTraceOfNet =
    "File \"/home/user/net.py\", line 12, in forward\n"
    "    x = x * self.scale\n"
    "  File \"/site-packages/torch/_tensor.py\", line 7, in __mul__\n"
    "    return torch.mul(self, other)";
// PyTorch's text for nodes that no module has called.
constexpr const char* kNoModule =
    "_empty_nn_module_stack_from_metadata_hook,_empty_nn_module_stack_from_metadata_hook,"
    "_empty_nn_module_stack_from_metadata_hook";
constexpr const char* kModules = "L__self__,,net.Net;L__self___layer@1,_layer.0,net.Layer";

json size_of(std::int64_t size) { return {{"as_int", size}}; }

// An object of nlohmann::json would otherwise be guessed from lists of two values.
json list_of(const std::vector<json>& items) {
  json list = json::array();
  for (const json& item : items) list.push_back(item);
  return list;
}

json payloads(const std::vector<std::pair<std::string, std::string>>& paths) {
  json config = json::object();
  for (const auto& [name, path] : paths) {
    config[name] = {{"path_name", path},
                    {"is_param", name == "scale"},
                    {"use_pickle", false},
                    {"tensor_meta", tensor_meta({3})}};
  }
  return {{"config", config}};
}

std::string state_dict_file() {
  static const std::string scale = scale_bytes(), mean = mean_bytes();
  return serialize_torch_file({{"scale", {"F32", {3}, {1}, 0, as_bytes(scale)}},
                               {"mean", {"F32", {3}, {1}, 0, as_bytes(mean)}}});
}

std::string constants_file() {
  static const std::string shift = shift_bytes();
  return serialize_torch_file({{"shift", {"F32", {3}, {1}, 0, as_bytes(shift)}}});
}

}  // namespace

json tensor_argument(const std::string& name) { return {{"as_tensor", {{"name", name}}}}; }

json tensor_meta(const std::vector<std::int64_t>& sizes) {
  std::vector<json> lengths, strides;
  std::int64_t stride = 1;
  for (const std::int64_t size : sizes) lengths.push_back(size_of(size));
  for (std::size_t i = sizes.size(); i-- > 0; stride *= sizes[i]) {
    strides.insert(strides.begin(), size_of(stride));
  }
  return {{"dtype", 7},
          {"sizes", list_of(lengths)},
          {"strides", list_of(strides)},
          {"storage_offset", size_of(0)},
          {"device", {{"type", "cpu"}, {"index", nullptr}}},
          {"layout", 7},
          {"requires_grad", false}};
}

json call(const std::string& target, const std::vector<json>& arguments,
          const std::vector<json>& outputs) {
  std::vector<json> inputs;
  for (const json& argument : arguments) {
    inputs.push_back({{"name", ""}, {"arg", argument}, {"kind", 1}});
  }
  return {{"target", target},
          {"inputs", list_of(inputs)},
          {"outputs", list_of(outputs)},
          {"metadata", json::object()}};
}

json graph_argument(const std::vector<json>& inputs, const std::vector<json>& nodes,
                    const std::vector<json>& outputs) {
  const json graph = {{"inputs", list_of(inputs)},
                      {"outputs", list_of(outputs)},
                      {"nodes", list_of(nodes)},
                      {"tensor_values", json::object()}};
  return {{"as_graph", {{"name", "graph_0"}, {"graph", graph}}}};
}

json leaf_spec() {
  return {{"type", nullptr}, {"context", nullptr}, {"children_spec", json::array()}};
}

json structure_spec(const std::string& type, const json& context,
                    const std::vector<json>& children) {
  return {{"type", type}, {"context", context}, {"children_spec", list_of(children)}};
}

std::string spec_text(const json& structure) { return list_of({1, structure}).dump(); }

json small_model() {
  json model = json::parse(kSmallModel);
  json& nodes = model["graph_module"]["graph"]["nodes"];
  nodes[0]["metadata"] = {{"stack_trace", kTraceOfTorch}, {"nn_module_stack", kNoModule}};
  nodes[1]["metadata"] = {{"stack_trace", kTraceOfNet}, {"nn_module_stack", kModules}};
  json x = tensor_meta({4, 3});
  x["sizes"][0] = {{"as_expr", {{"expr_str", "Symbol('s0')"}, {"hint", size_of(4)}}}};
  json& tensors = model["graph_module"]["graph"]["tensor_values"];
  for (const char* name : {"p_scale", "b_mean", "c_shift"}) tensors[name] = tensor_meta({3});
  for (const char* name : {"x", "mul", "add"}) tensors[name] = x;
  tensors["p_scale"]["requires_grad"] = true;
  json& signature = model["graph_module"]["module_call_graph"][0]["signature"];
  signature["in_spec"] =
      spec_text(structure_spec("builtins.tuple", "null",
                               {structure_spec("builtins.tuple", "null", {leaf_spec()}),
                                structure_spec("builtins.dict", "[]", {})}));
  signature["out_spec"] = spec_text(leaf_spec());
  return model;
}

json large_model() {
  json model = small_model();
  json& nodes = model["graph_module"]["graph"]["nodes"];
  const std::vector<json> numbers = {
      {{"as_int", 1}},       {{"as_float", "-Infinity"}},
      {{"as_bool", true}},   {{"as_string", "mean"}},
      {{"as_ints", {1, 2}}}, {{"as_sym_ints", {{{"as_int", 1}}, {{"as_name", "sym_size_int"}}}}},
      {{"as_none", true}},   {{"as_device", {{"type", "cuda"}, {"index", 1}}}},
      {{"as_layout", 7}},    {{"as_complex", {{"real", 0.5}, {"imag", "NaN"}}}},
      {{"as_floats", {0.5}}}};
  nodes.push_back(call("torch.ops.aten.f", numbers, {tensor_argument("f")}));
  const json inner = graph_argument(
      {tensor_argument("add")},
      {call("torch.ops.aten.neg.default", {tensor_argument("add")}, {tensor_argument("neg")})},
      {tensor_argument("neg")});
  nodes.push_back(call("torch.ops.higher_order.cond", {tensor_argument("f"), inner, inner},
                       {tensor_argument("cond")}));
  const json factory = {{"default_factory_module", "builtins"},
                        {"default_factory_name", "int"},
                        {"dict_context", {"p", 3}}};
  set_results(
      model,
      structure_spec(
          "builtins.dict", R"json(["list","pair","ordered","default","object"])json",
          {structure_spec("builtins.list", "null", {leaf_spec()}),
           structure_spec("collections.namedtuple", "net.Pair", {leaf_spec(), leaf_spec()}),
           structure_spec("collections.OrderedDict", R"json(["q"])json", {leaf_spec()}),
           structure_spec("collections.defaultdict", factory, {leaf_spec(), leaf_spec()}),
           structure_spec("net.Output", R"json([["loss"],["logits"]])json", {leaf_spec()})}),
      7);
  return model;
}

void set_results(json& model, const json& structure, std::size_t leaves) {
  json& module = model["graph_module"];
  module["module_call_graph"][0]["signature"]["out_spec"] = spec_text(structure);
  json& outputs = module["graph"]["outputs"];
  json& specs = module["signature"]["output_specs"];
  outputs = json::array();
  specs = json::array();
  for (std::size_t i = 0; i < leaves; ++i) {
    outputs.push_back(tensor_argument("add"));
    specs.push_back({{"user_output", {{"arg", tensor_argument("add")}}}});
  }
}

ArchiveEntries pt2_entries() {
  const json weights = payloads({{"scale", "weight_0"}, {"mean", "weight_1"}});
  const json constants = payloads({{"shift", "tensor_0"}});
  return {{"net/models/model.json", small_model().dump()},
          {"net/data/weights/weight_0", scale_bytes()},
          {"net/data/weights/weight_1", mean_bytes()},
          {"net/data/weights/model_weights_config.json", weights.dump()},
          {"net/data/constants/tensor_0", shift_bytes()},
          {"net/data/constants/model_constants_config.json", constants.dump()},
          {"net/archive_format", "pt2"},
          {"net/archive_version", "0"},
          {"net/byteorder", "little"}};
}

ArchiveEntries pt2_entries_of_2_8() {
  return {{"net/models/model.json", small_model().dump()},
          {"net/data/weights/model.pt", state_dict_file()},
          {"net/data/constants/model.pt", constants_file()},
          {"net/byteorder", "little"}};
}

ArchiveEntries pt2_entries_of_2_7() {
  return {{"serialized_exported_program.json", small_model().dump()},
          {"serialized_state_dict.pt", state_dict_file()},
          {"serialized_constants.pt", constants_file()},
          {"serialized_example_inputs.pt", "not read"},
          {"version", "8.7"},
          {"extra_files/notes.txt", "any text"}};
}

std::string& entry(ArchiveEntries& entries, const std::string& name) {
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const auto& known) { return known.first == name; });
  if (found == entries.end()) throw std::out_of_range("there is no entry " + name);
  return found->second;
}

std::string zip_of(const ArchiveEntries& entries) {
  std::string file;
  torch_file::ZipWriter zip([&](std::string_view piece) { file += piece; });
  for (const auto& [name, content] : entries) zip.add(name, content);
  zip.finish();
  return file;
}

std::string scale_bytes() { return pattern(12); }
std::string mean_bytes() { return pattern(12, 5); }
std::string shift_bytes() { return pattern(12, 7); }

}  // namespace lockstep::testing_support
