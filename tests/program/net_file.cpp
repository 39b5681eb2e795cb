#include <tests/program/net_file.h>

#include <torch/nn/functional/activation.h>
#include <torch/nn/functional/batchnorm.h>
#include <torch/nn/functional/dropout.h>
#include <torch/nn/module.h>

#include <fstream>
#include <optional>

#include <lockstep/formats/torch_file/zip_archive.h>
#include <tests/program/pt2_bytes.h>

namespace lockstep::testing_support {
namespace {

using Json = nlohmann::json;

Json size_json(std::int64_t size) {
  if (size != 0) return {{"as_int", size}};
  return {{"as_expr", {{"expr_str", "Symbol('s0', positive=True)"}, {"hint", {{"as_int", 4}}}}}};
}

std::string text_of(const torch::Tensor& tensor) {
  const torch::Tensor dense = tensor.detach().contiguous();
  return {static_cast<const char*>(dense.data_ptr()), dense.nbytes()};
}

Json meta_of(const torch::Tensor& tensor) {
  Json meta = tensor_meta(tensor.sizes().vec());
  if (tensor.scalar_type() == torch::kLong) meta["dtype"] = 5;
  meta["requires_grad"] = tensor.requires_grad();
  return meta;
}

}  // namespace

NetFile::NetFile() {
  for (Json* list :
       {&inputs_, &input_specs_, &user_inputs_, &user_specs_, &nodes_, &outputs_, &output_specs_}) {
    *list = Json::array();
  }
  values_ = Json::object();
}

std::string NetFile::state(const char* kind, const std::string& name, const torch::Tensor& tensor) {
  std::string value = std::string(1, kind[0]) + "_" + name;
  for (char& c : value) c = c == '.' ? '_' : c;
  inputs_.push_back(tensor_argument(value));
  values_[value] = meta_of(tensor);
  return value;
}

std::string NetFile::parameter(const std::string& name, const torch::Tensor& tensor) {
  const std::string value = state("parameter", name, tensor);
  values_[value]["requires_grad"] = true;
  input_specs_.push_back({{"parameter", {{"arg", {{"name", value}}}, {"parameter_name", name}}}});
  weights_.emplace_back(name, tensor);
  return value;
}

std::string NetFile::buffer(const std::string& name, const torch::Tensor& tensor) {
  const std::string value = state("buffer", name, tensor);
  input_specs_.push_back(
      {{"buffer", {{"arg", {{"name", value}}}, {"buffer_name", name}, {"persistent", true}}}});
  weights_.emplace_back(name, tensor);
  return value;
}

std::string NetFile::constant(const std::string& name, const torch::Tensor& tensor) {
  const std::string value = state("constant", name, tensor);
  input_specs_.push_back(
      {{"tensor_constant", {{"arg", {{"name", value}}}, {"tensor_constant_name", name}}}});
  constants_.emplace_back(name, tensor);
  return value;
}

std::string NetFile::input(const std::string& name, const std::vector<std::int64_t>& sizes) {
  describe(name, sizes, false);
  user_inputs_.push_back(tensor_argument(name));
  user_specs_.push_back({{"user_input", {{"arg", tensor_argument(name)}}}});
  arguments_.push_back(name);
  return name;
}

void NetFile::fixed_input(const std::string& name, const Json& value) {
  user_inputs_.push_back(value);
  user_specs_.push_back({{"constant_input", {{"name", name}, {"value", value}}}});
  arguments_.push_back(name);
}

void NetFile::describe(const std::string& value, const std::vector<std::int64_t>& sizes,
                       bool has_gradient) {
  Json meta = tensor_meta(sizes);
  meta["sizes"] = Json::array();
  for (const std::int64_t size : sizes) meta["sizes"].push_back(size_json(size));
  meta["requires_grad"] = has_gradient;
  values_[value] = meta;
}

void NetFile::add_call(const std::string& target, const Arguments& arguments, const Json& outputs,
                       const std::string& path, const std::string& type) {
  const std::string place = std::to_string(++calls_);
  Json inputs = Json::array();
  for (const auto& [name, argument] : arguments) {
    inputs.push_back({{"name", name}, {"arg", argument}, {"kind", 1}});
  }
  nodes_.push_back(
      {{"target", target},
       {"name", "call" + place},
       {"inputs", inputs},
       {"outputs", outputs},
       {"metadata",
        {{"stack_trace",
          "File \"/home/user/net.py\", line " + place + ", in forward\n    x = call()"},
         {"nn_module_stack", "L__self__,,net.Net;L__self__part," + path + "," + type}}}});
}

std::string NetFile::call(const std::string& target, const Arguments& arguments,
                          const std::vector<std::int64_t>& sizes, const std::string& path,
                          const std::string& type) {
  return calls(target, arguments, 1, sizes, /*as_list=*/false, path, type).front();
}

std::vector<std::string> NetFile::calls(const std::string& target, const Arguments& arguments,
                                        std::size_t count, const std::vector<std::int64_t>& sizes,
                                        bool as_list, const std::string& path,
                                        const std::string& type) {
  std::vector<std::string> values;
  Json outputs = Json::array(), names = Json::array();
  for (std::size_t i = 0; i < count; ++i) {
    values.push_back("v" + std::to_string(calls_ + 1) + (i == 0 ? "" : "_" + std::to_string(i)));
    describe(values.back(), sizes, true);
    outputs.push_back(tensor(values.back()));
    names.push_back({{"name", values.back()}});
  }
  if (as_list) {
    outputs = Json::array();
    outputs.push_back({{"as_tensors", names}});
  }
  add_call(target, arguments, outputs, path, type);
  return values;
}

std::string NetFile::number(const std::string& target, const Arguments& arguments) {
  const std::string value = "n" + std::to_string(calls_ + 1);
  Json outputs = Json::array();
  outputs.push_back(symbol(value));
  add_call(target, arguments, outputs, "", "net.Net");
  return value;
}

void NetFile::write_to_buffer(const std::string& value, const std::string& name) {
  outputs_.push_back(tensor(value));
  output_specs_.push_back(
      {{"buffer_mutation", {{"arg", {{"name", value}}}, {"buffer_name", name}}}});
}

Json NetFile::graph() const {
  const Json graph = {{"inputs", user_inputs_},
                      {"outputs", outputs_},
                      {"nodes", nodes_},
                      {"tensor_values", values_}};
  return {{"as_graph", {{"name", "graph"}, {"graph", graph}}}};
}

void NetFile::output(const std::string& value, const std::string& key) {
  outputs_.push_back(tensor(value));
  output_specs_.push_back({{"user_output", {{"arg", tensor(value)}}}});
  if (!key.empty()) keys_.push_back(key);
}

void NetFile::output_none(const std::string& key) {
  const Json none = {{"as_none", true}};
  outputs_.push_back(none);
  output_specs_.push_back({{"user_output", {{"arg", none}}}});
  keys_.push_back(key);
}

void NetFile::write(const std::filesystem::path& path) const {
  Json model = small_model();
  if (guard_) model["guards_code"] = Json::array({*guard_});
  Json& module = model["graph_module"];
  Json inputs = inputs_, specs = input_specs_;
  for (const Json& input : user_inputs_) inputs.push_back(input);
  for (const Json& spec : user_specs_) specs.push_back(spec);
  module["graph"]["inputs"] = inputs;
  module["graph"]["outputs"] = outputs_;
  module["graph"]["nodes"] = nodes_;
  module["graph"]["tensor_values"] = values_;
  module["signature"] = {{"input_specs", specs}, {"output_specs", output_specs_}};
  const std::vector<Json> leaves(arguments_.size(), leaf_spec());
  module["module_call_graph"][0]["signature"]["in_spec"] =
      spec_text(structure_spec("builtins.tuple", "null",
                               {structure_spec("builtins.tuple", "null", leaves),
                                structure_spec("builtins.dict", "[]", {})}));
  module["module_call_graph"][0]["signature"]["forward_arg_names"] = arguments_;
  module["module_call_graph"][0]["signature"]["out_spec"] =
      spec_text(keys_.empty() ? leaf_spec()
                              : structure_spec("builtins.dict", Json(keys_).dump(),
                                               std::vector<Json>(keys_.size(), leaf_spec())));
  ArchiveEntries entries = {{"net/models/model.json", model.dump()}, {"net/byteorder", "little"}};
  const auto add = [&](const char* folder, const char* prefix, const char* config,
                       const auto& tensors) {
    Json payloads = Json::object();
    std::vector<const void*> known;
    for (const auto& [name, tensor] : tensors) {
      std::size_t place = 0;
      while (place < known.size() && known[place] != tensor.data_ptr()) ++place;
      const std::string file = prefix + std::to_string(place);
      if (place == known.size()) {
        known.push_back(tensor.data_ptr());
        entries.emplace_back(std::string("net/data/") + folder + "/" + file, text_of(tensor));
      }
      payloads[name] = {{"path_name", file},
                        {"is_param", tensor.requires_grad()},
                        {"use_pickle", false},
                        {"tensor_meta", meta_of(tensor)}};
    }
    entries.emplace_back(std::string("net/data/") + folder + "/" + config,
                         Json{{"config", payloads}}.dump());
  };
  add("weights", "weight_", "model_weights_config.json", weights_);
  add("constants", "tensor_", "model_constants_config.json", constants_);
  std::ofstream(path, std::ios::binary) << zip_of(entries);
}

NetFile small_classifier() {
  using N = NetFile;
  torch::manual_seed(3);
  const auto trained = [](const torch::Tensor& tensor) { return tensor.set_requires_grad(true); };
  const torch::Tensor shared = trained(torch::randn({6, 6}));
  NetFile file;
  const auto first = file.parameter("first.weight", shared);
  const auto bias = file.parameter("first.bias", trained(torch::randn({6})));
  const auto scale = file.parameter("norm.weight", trained(torch::rand({6})));
  const auto offset = file.parameter("norm.bias", trained(torch::rand({6})));
  const auto last = file.parameter("last.weight", shared);
  const auto mean = file.buffer("norm.running_mean", torch::zeros({6}));
  const auto variance = file.buffer("norm.running_var", torch::ones({6}));
  const auto count = file.buffer("norm.num_batches_tracked", torch::tensor(0));
  const auto shift = file.constant("shift", torch::arange(6, torch::kFloat));
  const auto x = file.input("x", {0, 6});
  const auto hidden =
      file.call("torch.ops.aten.linear.default",
                {{"input", N::tensor(x)}, {"weight", N::tensor(first)}, {"bias", N::tensor(bias)}},
                {0, 6}, "first");
  file.call("torch.ops.aten.add_.Tensor", {{"self", N::tensor(count)}, {"other", N::integer(1)}},
            {}, "norm", "torch.nn.modules.batchnorm.BatchNorm1d");
  const auto normal = file.call("torch.ops.aten.batch_norm.default",
                                {{"input", N::tensor(hidden)},
                                 {"weight", N::tensor(scale)},
                                 {"bias", N::tensor(offset)},
                                 {"running_mean", N::tensor(mean)},
                                 {"running_var", N::tensor(variance)},
                                 {"training", N::truth(true)},
                                 {"momentum", N::real(0.1)},
                                 {"eps", N::real(1e-5)},
                                 {"cudnn_enabled", N::truth(false)}},
                                {0, 6}, "norm", "torch.nn.modules.batchnorm.BatchNorm1d");
  const auto active =
      file.call("torch.ops.aten.relu_.default", {{"self", N::tensor(normal)}}, {0, 6}, "active");
  const auto dropped =
      file.call("torch.ops.aten.dropout.default",
                {{"input", N::tensor(active)}, {"p", N::real(0.25)}, {"train", N::truth(true)}},
                {0, 6}, "drop", "torch.nn.modules.dropout.Dropout");
  const auto rows =
      file.number("torch.ops.aten.sym_size.int", {{"self", N::tensor(x)}, {"dim", N::integer(0)}});
  const auto doubled = file.number("_operator.mul", {{"a", N::symbol(rows)}, {"b", N::integer(2)}});
  const auto pairs =
      file.call("torch.ops.aten.view.default",
                {{"self", N::tensor(dropped)},
                 {"size", {{"as_sym_ints", {{{"as_name", doubled}}, {{"as_int", 3}}}}}}},
                {0, 3});
  const auto back =
      file.call("torch.ops.aten.view.default",
                {{"self", N::tensor(pairs)}, {"size", {{"as_ints", {-1, 6}}}}}, {0, 6});
  const auto moved = file.call("torch.ops.aten.add.Tensor",
                               {{"self", N::tensor(back)}, {"other", N::tensor(shift)}}, {0, 6});
  const auto logits =
      file.call("torch.ops.aten.linear.default",
                {{"input", N::tensor(moved)}, {"weight", N::tensor(last)}}, {0, 6}, "last");
  file.output(logits, "logits");
  file.output(moved, "hidden");
  return file;
}

torch::Tensor logits_of(const torch::nn::Module& net, const torch::Tensor& x, bool training) {
  namespace F = torch::nn::functional;
  const auto parameters = net.named_parameters();
  const auto buffers = net.named_buffers();
  torch::Tensor y = torch::linear(x, parameters["first.weight"], parameters["first.bias"]);
  if (training) torch::NoGradGuard(), buffers["norm.num_batches_tracked"].add_(1);
  y = torch::batch_norm(y, parameters["norm.weight"], parameters["norm.bias"],
                        buffers["norm.running_mean"], buffers["norm.running_var"], training, 0.1,
                        1e-5, false);
  y = torch::dropout(y.relu_(), 0.25, training);
  return torch::linear(y + torch::arange(6, y.options().requires_grad(false)),
                       parameters["last.weight"]);
}

}  // namespace lockstep::testing_support
