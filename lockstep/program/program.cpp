#include <lockstep/program/program.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <ostream>
#include <sstream>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/core/suggestion.h>
#include <lockstep/formats/printable.h>
#include <lockstep/program/channels_last.h>
#include <lockstep/program/graph/pt2_file.h>
#include <lockstep/program/module_shapes.h>
#include <lockstep/program/module_tree.h>
#include <lockstep/program/program_parts.h>
#include <lockstep/program/torch_names.h>

namespace lockstep {

using formats::printable;
using program::Home;
using program::InputSpec;
using program::is_registered;
using program::is_user;
using program::Leaf;
using program::OutputSpec;
using program::StoredTensor;

namespace {

// Copies tensors out of a file. Tensors that share memory in the file share it here, and tensors
// that are equal views of the same memory, such as tied parameters, become one tensor.
class Storages {
 public:
  torch::Tensor tensor(const StoredTensor& stored) {
    const auto type = program::scalar_type(stored.dtype);
    const Key key{stored.storage.data(), type, stored.offset, stored.sizes, stored.strides};
    if (const auto known = tensors_.find(key); known != tensors_.end()) return known->second;
    torch::Tensor result = at::empty({0}, at::dtype(type));
    result.set_(memory(stored), stored.offset, stored.sizes, stored.strides);
    tensors_.emplace(key, result);
    return result;
  }

 private:
  using Key = std::tuple<const std::byte*, c10::ScalarType, std::int64_t, std::vector<std::int64_t>,
                         std::vector<std::int64_t>>;

  c10::Storage memory(const StoredTensor& stored) {
    auto found = memory_.find(stored.storage.data());
    if (found == memory_.end()) {
      const auto bytes = static_cast<std::int64_t>(stored.storage.size());
      const torch::Tensor copy = at::empty({bytes}, at::kByte);
      if (bytes > 0) std::memcpy(copy.data_ptr(), stored.storage.data(), stored.storage.size());
      found = memory_.emplace(stored.storage.data(), copy.storage()).first;
    }
    return found->second;
  }

  std::map<const std::byte*, c10::Storage> memory_;
  std::map<Key, torch::Tensor> tensors_;
};

ProgramOutput leaf_of(c10::IValue&& value) {
  if (value.isTensor()) return ProgramOutput(std::move(value).toTensor());
  if (value.isBool()) return ProgramOutput(value.toBool());
  if (value.isInt()) return ProgramOutput(value.toInt());
  if (value.isDouble()) return ProgramOutput(value.toDouble());
  if (value.isString()) return ProgramOutput(value.toStringRef());
  return {};
}

ProgramOutput::Kind kind_of(program::Structure::Kind kind) {
  switch (kind) {
    case program::Structure::Kind::kLeaf:
      return ProgramOutput::Kind::kLeaf;
    case program::Structure::Kind::kList:
      return ProgramOutput::Kind::kList;
    case program::Structure::Kind::kTuple:
      return ProgramOutput::Kind::kTuple;
    case program::Structure::Kind::kDict:
      return ProgramOutput::Kind::kDict;
    case program::Structure::Kind::kObject:
      return ProgramOutput::Kind::kObject;
  }
  return ProgramOutput::Kind::kLeaf;
}

// Gives the values, in order, the structure that the model returns. The names stay those of
// `structure`, which `owner` keeps alive.
ProgramOutput structured(const program::Structure& structure, std::vector<c10::IValue>& values,
                         std::size_t& next, const std::shared_ptr<const void>& owner) {
  if (structure.kind == program::Structure::Kind::kLeaf) {
    return next < values.size() ? leaf_of(std::move(values[next++])) : ProgramOutput();
  }
  std::vector<ProgramOutput> children;
  children.reserve(structure.children.size());
  for (const program::Structure& child : structure.children) {
    children.push_back(structured(child, values, next, owner));
  }
  return {kind_of(structure.kind), ProgramOutput::Names(owner, &structure.names),
          std::move(children)};
}

// The tensors of the file at the places of the graph's inputs.
std::vector<torch::Tensor> load_tensors(const program::Pt2File& file) {
  Storages storages;
  std::vector<torch::Tensor> tensors;
  for (const InputSpec& input : file.program.inputs) {
    torch::Tensor& tensor = tensors.emplace_back();
    if (is_user(input)) continue;
    const auto& stored = is_registered(input) ? file.state : file.constants;
    tensor = storages.tensor(stored.at(input.target));
    if (input.kind != InputSpec::Kind::kParameter) continue;
    const auto& value = std::get<program::TensorName>(input.argument.value).name;
    const bool has_gradient = tensor.is_floating_point() || tensor.is_complex();
    tensor.set_requires_grad(has_gradient && file.program.graph.tensors.at(value).requires_grad);
  }
  return tensors;
}

void require_fixed_value(const std::string& file, const Leaf& leaf, const c10::IValue& value) {
  if (!value.isTensor() && value == leaf.fixed) return;
  std::ostringstream got;
  if (value.isTensor()) {
    got << "a tensor";
  } else {
    got << value;
  }
  std::ostringstream fixed;
  fixed << leaf.fixed;
  throw ConfigError(str(file, ": the export has fixed the input '", printable(leaf.name), "' to ",
                        fixed.str(), ", got ", got.str(),
                        "; export the model with the value that you need"));
}

c10::Device device_of(const program::TensorDescription& tensor, const std::string& file) {
  try {
    return c10::Device(tensor.device.type);
  } catch (const c10::Error&) {
    throw CheckpointError(
        str(file, ": LibTorch knows no device '", printable(tensor.device.type), "'"));
  }
}

// What an output is written to: the place of a parameter or buffer among the inputs of the graph,
// or of an argument among those that the user passes. References were checked when the file was
// read.
std::size_t written_by(const OutputSpec& output, const std::vector<InputSpec>& inputs) {
  std::size_t user = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!is_user(inputs[i])) {
      if (output.kind == OutputSpec::Kind::kMutation && inputs[i].target == output.target) return i;
      continue;
    }
    const auto* name = std::get_if<program::TensorName>(&inputs[i].argument.value);
    if (output.kind == OutputSpec::Kind::kUserMutation && name != nullptr &&
        name->name == output.target) {
      return user;
    }
    ++user;
  }
  return 0;
}

}  // namespace

std::shared_ptr<const ProgramImpl::Source> ProgramImpl::Source::make(std::string name,
                                                                     program::ExportedGraph graph,
                                                                     const ProgramOptions& options,
                                                                     const Source* origin) {
  auto source = std::make_shared<Source>();
  source->name = std::move(name);
  source->graph = std::move(graph);
  source->options = options;
  if (options.channels_last) {
    source->channels_last = program::to_channels_last(source->graph, source->name);
  }
  source->leaves = program::leaves_of(source->graph, source->name);
  std::vector<std::string> leaf_names;
  for (const Leaf& leaf : source->leaves) leaf_names.push_back(leaf.name);
  source->guards.emplace(source->graph.guards, leaf_names, source->name);
  for (const InputSpec& input : source->graph.inputs) {
    if (is_user(input)) continue;
    const std::string& value = std::get<program::TensorName>(input.argument.value).name;
    if (!source->graph.graph.tensors.contains(value)) {
      throw CheckpointError(
          str(source->name, ": the graph does not describe '", printable(value), "'"));
    }
    source->state_names.emplace(value, input.target);
  }
  for (const OutputSpec& output : source->graph.outputs) {
    source->written.push_back(written_by(output, source->graph.inputs));
    source->changes_inputs |= output.kind == OutputSpec::Kind::kUserMutation;
  }
  source->free_leaves =
      static_cast<std::size_t>(std::count_if(source->leaves.begin(), source->leaves.end(),
                                             [](const Leaf& leaf) { return !leaf.is_fixed; }));
  source->export_modes =
      origin == nullptr ? program::export_modes(source->graph.graph) : origin->export_modes;
  source->fixed_modes = program::fixed_modes(source->graph.graph, source->export_modes);
  source->find_home();
  if (origin != nullptr) source->home = origin->home;
  source->input_check.emplace(source->leaves, source->graph.ranges, source->home, source->name);
  return source;
}

// The first floating-point parameter decides, or else the first floating-point tensor.
void ProgramImpl::Source::find_home() {
  for (const bool only_parameters : {true, false}) {
    for (std::size_t i = 0; i < graph.inputs.size() && !home_tensor; ++i) {
      const InputSpec& input = graph.inputs[i];
      if (is_user(input)) continue;
      if (only_parameters && input.kind != InputSpec::Kind::kParameter) continue;
      const auto& tensor =
          graph.graph.tensors.at(std::get<program::TensorName>(input.argument.value).name);
      const auto type = program::scalar_type(tensor.dtype);
      if (!c10::isFloatingType(type)) continue;
      home_tensor = i;
      home = {device_of(tensor, name), type};
    }
  }
  if (home_tensor) return;
  for (const Leaf& leaf : leaves) {
    if (!leaf.is_tensor) continue;
    home.device = device_of(leaf.tensor, name);
    return;
  }
}

std::shared_ptr<const program::Plan> ProgramImpl::Source::plan(const Home& home_now) const {
  const std::scoped_lock lock(plans_mutex_);
  std::erase_if(plans_, [](const auto& known) { return known.second.expired(); });
  for (const auto& [known_home, known] : plans_) {
    if (known_home != home_now) continue;
    if (auto plan = known.lock()) return plan;
  }
  auto plan = program::Plan::compile(graph.graph, {.name = name,
                                                   .from = home,
                                                   .to = home_now,
                                                   .namespaces = options.namespaces,
                                                   .state_names = state_names,
                                                   .in_place = options.in_place});
  plans_.emplace_back(home_now, plan);
  return plan;
}

void ProgramImpl::Parts::set_home(const Home& now) {
  if (plan != nullptr && now == home) return;
  home = now;
  plan = source->plan(home);
}

void ProgramImpl::Parts::find_modules(program::ModuleTree& tree) {
  modules.clear();
  for (const auto& mode : plan->modules()) modules.push_back(&tree.at(mode.path));
}

void ProgramImpl::Parts::follow_tensors() {
  if (source->home_tensor) {
    const torch::Tensor& tensor = tensors[*source->home_tensor];
    set_home({tensor.device(), tensor.scalar_type()});
  } else {
    set_home(home);
  }
}

ProgramImpl::ProgramImpl(const std::filesystem::path& path, const ProgramOptions& options)
    : torch::nn::Module("Program") {
  const MappedFile mapped(path);
  program::Pt2File file = program::parse_pt2_file(mapped.bytes(), path.string());
  // The tensors refer to descriptions that making the source checks.
  auto source = Source::make(path.string(), file.program, options);
  adopt(std::move(source), load_tensors(file));
  if (options.channels_last) to_channels_last();
}

ProgramImpl::ProgramImpl(std::shared_ptr<const Source> source, std::vector<torch::Tensor> tensors)
    : torch::nn::Module("Program") {
  adopt(std::move(source), std::move(tensors));
}

void ProgramImpl::adopt(std::shared_ptr<const Source> source, std::vector<torch::Tensor> tensors) {
  parts_ = std::make_unique<Parts>();
  parts_->source = std::move(source);
  parts_->tensors = std::move(tensors);
  parts_->home = {c10::kCPU, parts_->source->home.type};
  program::ModuleTree tree(*this, parts_->source->graph.graph);
  const auto& inputs = parts_->source->graph.inputs;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (is_registered(inputs[i])) tree.add(inputs[i], parts_->tensors[i]);
  }
  parts_->follow_tensors();
  parts_->find_modules(tree);
  auto modes = parts_->plan->modules();
  const bool is_training =
      modes.empty() ||
      std::any_of(modes.begin(), modes.end(), [](const auto& mode) { return mode.is_training; });
  torch::nn::Module::train(is_training);
  // Parents first, because train() also changes the children.
  std::sort(modes.begin(), modes.end(),
            [](const auto& a, const auto& b) { return a.path < b.path; });
  for (const auto& mode : modes) tree.at(mode.path).train(mode.is_training);
}

ProgramImpl::~ProgramImpl() = default;

ProgramOutput ProgramImpl::forward(const NamedInputs& inputs) {
  const Source& source = *parts_->source;
  std::vector<c10::IValue> values;
  values.reserve(source.free_leaves);
  for (const Leaf& leaf : source.leaves) {
    if (leaf.is_fixed) continue;
    const auto found = inputs.find(leaf.name);
    if (found == inputs.end()) {
      throw ConfigError(str(source.name, ": the input '", printable(leaf.name), "' is missing"));
    }
    values.push_back(found->second);
  }
  for (const auto& [name, value] : inputs) {
    const auto known_leaf =
        std::find_if(source.leaves.begin(), source.leaves.end(),
                     [&, &name = name](const Leaf& leaf) { return leaf.name == name; });
    if (known_leaf != source.leaves.end()) {
      if (known_leaf->is_fixed) require_fixed_value(source.name, *known_leaf, value);
      continue;
    }
    std::vector<std::string> known;
    for (const Leaf& leaf : source.leaves) known.push_back(leaf.name);
    throw ConfigError(
        str(source.name, ": there is no input '", printable(name), "'", did_you_mean(name, known)));
  }
  return run(std::move(values));
}

ProgramOutput ProgramImpl::forward(const std::vector<torch::Tensor>& inputs) {
  return run({inputs.begin(), inputs.end()});
}

ProgramOutput ProgramImpl::run(std::vector<c10::IValue> inputs) {
  program::ModuleShapes* const shapes = program::ModuleShapesScope::current();
  if (shapes == nullptr) return run_measured(std::move(inputs), nullptr);
  Record record;
  ProgramOutput output = run_measured(std::move(inputs), &record);
  shapes->add(*this, parts_->source->graph.graph, record);
  return output;
}

ProgramOutput ProgramImpl::run_measured(std::vector<c10::IValue> inputs, Record* record) {
  const Source& source = *parts_->source;
  if (inputs.size() != source.free_leaves) {
    std::string names;
    for (const Leaf& leaf : source.leaves) {
      if (!leaf.is_fixed) names += str(names.empty() ? "" : ", ", printable(leaf.name));
    }
    throw ConfigError(str(source.name, ": expected ", source.free_leaves,
                          source.free_leaves == 1 ? " input (" : " inputs (", names, "), got ",
                          inputs.size()));
  }
  std::vector<c10::IValue> values;  // one for each leaf
  if (source.free_leaves == source.leaves.size()) {
    values = std::move(inputs);
  } else {
    values.reserve(source.leaves.size());
    std::size_t next = 0;
    for (const Leaf& leaf : source.leaves) {
      values.push_back(leaf.is_fixed ? leaf.fixed : std::move(inputs[next++]));
    }
  }
  source.input_check->check(values, parts_->home);
  source.guards->check(values);
  std::vector<c10::IValue> user;
  if (source.changes_inputs) user = values;

  std::vector<c10::IValue> arguments;
  arguments.reserve(source.graph.inputs.size());
  std::size_t next = 0;
  for (std::size_t i = 0; i < source.graph.inputs.size(); ++i) {
    if (is_user(source.graph.inputs[i])) {
      arguments.push_back(std::move(values[next++]));
      if (!source.channels_last.empty() && source.channels_last[i]) {
        arguments.back() =
            arguments.back().toTensor().contiguous(torch::MemoryFormat::ChannelsLast);
      }
    } else {
      arguments.emplace_back(parts_->tensors[i]);
    }
  }
  std::vector<c10::IValue> results =
      parts_->plan->run(std::move(arguments), parts_->modules, record);

  std::size_t returned = 0;  // results that the user gets move to the front
  for (std::size_t i = 0; i < results.size(); ++i) {
    const OutputSpec::Kind kind = source.graph.outputs[i].kind;
    if (kind == OutputSpec::Kind::kUser) {
      if (returned != i) results[returned] = std::move(results[i]);
      ++returned;
      continue;
    }
    const torch::NoGradGuard no_grad;
    const std::size_t place = source.written[i];
    const bool to_user = kind == OutputSpec::Kind::kUserMutation;
    const torch::Tensor& to = to_user ? user[place].toTensor() : parts_->tensors[place];
    to.copy_(results[i].toTensor());
  }
  results.resize(returned);
  next = 0;
  return structured(source.graph.results, results, next, parts_->source);
}

std::vector<ProgramInput> ProgramImpl::inputs() const {
  std::vector<ProgramInput> result;
  for (const Leaf& leaf : parts_->source->leaves) {
    if (!leaf.is_fixed) result.push_back({leaf.name, program::type_text(leaf)});
  }
  return result;
}

ProgramOutput ProgramImpl::output_structure() const {
  std::vector<c10::IValue> nothing;
  std::size_t next = 0;
  return structured(parts_->source->graph.results, nothing, next, parts_->source);
}

const std::vector<std::string>& ProgramImpl::fixed_modes() const {
  return parts_->source->fixed_modes;
}

std::vector<torch::Tensor> ProgramImpl::batch_normalizations() const {
  const Source& source = *parts_->source;
  const auto tensor_of = [&](const program::Node& node, std::string_view argument) {
    for (const auto& input : node.inputs) {
      const auto* name = std::get_if<program::TensorName>(&input.argument.value);
      if (input.name != argument || name == nullptr) continue;
      for (std::size_t i = 0; i < source.graph.inputs.size(); ++i) {
        const auto* value =
            std::get_if<program::TensorName>(&source.graph.inputs[i].argument.value);
        if (value != nullptr && value->name == name->name) return parts_->tensors[i];
      }
    }
    return torch::Tensor();
  };
  std::vector<torch::Tensor> found;
  const auto collect = [&](const program::Graph& graph, bool is_whole, const auto& self) -> void {
    for (const program::Node& node : graph.nodes) {
      for (const auto& input : node.inputs) {
        const auto* inner = std::get_if<program::Subgraph>(&input.argument.value);
        if (inner != nullptr) self(*inner->graph, false, self);
      }
      const bool is_plain = node.target == "torch.ops.aten.batch_norm.default";
      if (!is_plain && node.target.find("batch_norm") == std::string::npos) continue;
      torch::Tensor tensor =
          is_plain && is_whole ? tensor_of(node, "running_mean") : torch::Tensor();
      if (is_plain && is_whole && !tensor.defined()) tensor = tensor_of(node, "weight");
      if (!tensor.defined()) {
        throw ConfigError(str(source.name, ": ", node.target, node.source.empty() ? "" : " at ",
                              node.source,
                              " cannot be synchronised over ranks: it has neither "
                              "running statistics nor a weight, lies in a branch or region, or was "
                              "exported after run_decompositions()"));
      }
      found.push_back(tensor);
    }
  };
  collect(source.graph.graph, true, collect);
  return found;
}

std::shared_ptr<torch::nn::Module> ProgramImpl::clone(
    const std::optional<torch::Device>& device) const {
  const torch::NoGradGuard no_grad;
  // Tensors that share memory share it in the copy, and a tied parameter stays one tensor.
  std::map<const c10::StorageImpl*, c10::Storage> storages;
  std::map<const void*, torch::Tensor> copies;
  std::vector<torch::Tensor> tensors;
  for (const torch::Tensor& tensor : parts_->tensors) {
    torch::Tensor& copy = tensors.emplace_back();
    if (!tensor.defined()) continue;
    torch::Tensor& made = copies[tensor.unsafeGetTensorImpl()];
    if (!made.defined()) {
      const c10::Storage& storage = tensor.storage();
      auto known = storages.find(storage.unsafeGetStorageImpl());
      if (known == storages.end()) {
        const auto bytes = static_cast<std::int64_t>(storage.nbytes());
        torch::Tensor whole = at::empty({0}, at::device(tensor.device()).dtype(at::kByte));
        whole.set_(storage, 0, {bytes}, {1});
        whole = whole.to(device.value_or(tensor.device()), at::kByte, /*non_blocking=*/false,
                         /*copy=*/true);
        known = storages.emplace(storage.unsafeGetStorageImpl(), whole.storage()).first;
      }
      made = at::empty({0}, tensor.options().device(device.value_or(tensor.device())));
      made.set_(known->second, tensor.storage_offset(), tensor.sizes(), tensor.strides());
      made.set_requires_grad(tensor.requires_grad());
    }
    copy = made;
  }
  std::shared_ptr<ProgramImpl> copy(new ProgramImpl(parts_->source, std::move(tensors)));
  copy->parts_->set_home({device.value_or(parts_->home.device), parts_->home.type});
  copy->follow_modes(*this);
  return copy;
}

// A net that contains a program clones itself by making another net, whose program has been read
// from the file again. LibTorch then calls this for the new program, with the original.
void ProgramImpl::clone_(Module& other, const std::optional<torch::Device>& device) {
  const auto* const original = other.as<ProgramImpl>();
  const auto& inputs = parts_->source->graph.inputs;
  const bool is_same =
      original != nullptr &&
      std::equal(inputs.begin(), inputs.end(), original->parts_->source->graph.inputs.begin(),
                 original->parts_->source->graph.inputs.end(),
                 [](const InputSpec& a, const InputSpec& b) {
                   return a.target == b.target && a.kind == b.kind && a.persistent == b.persistent;
                 });
  if (!is_same) {
    throw ConfigError(
        str(parts_->source->name, ": the copy of the module that contains it has another program"));
  }
  const auto copy = std::dynamic_pointer_cast<ProgramImpl>(original->clone(device));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    torch::Tensor& tensor = parts_->tensors[i];
    const torch::Tensor& copied = copy->parts_->tensors[i];
    if (!is_registered(inputs[i])) {
      tensor = copied;
      continue;
    }
    tensor.set_requires_grad(false);
    tensor.set_data(copied.detach());
    tensor.set_requires_grad(copied.requires_grad());
  }
  // The original may have changed since it was read, for instance by to_channels_last().
  parts_->source = copy->parts_->source;
  parts_->home = copy->parts_->home;
  parts_->plan = copy->parts_->plan;
  program::ModuleTree tree(*this, parts_->source->graph.graph);
  parts_->find_modules(tree);
  follow_modes(*original);
}

void ProgramImpl::follow_modes(const torch::nn::Module& whole) {
  program::copy_modes(whole, *this);
}

// Unlike Module::to(), leaves integers and complex numbers their type, as Python does.
void ProgramImpl::move(const std::optional<torch::Device>& device,
                       const std::optional<torch::Dtype>& dtype, bool non_blocking) {
  const torch::NoGradGuard no_grad;
  const auto& inputs = parts_->source->graph.inputs;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    torch::Tensor& tensor = parts_->tensors[i];
    if (!tensor.defined()) continue;
    const bool follows = dtype.has_value() && tensor.is_floating_point();
    const torch::Tensor moved = tensor.to(device.value_or(tensor.device()),
                                          follows ? *dtype : tensor.scalar_type(), non_blocking);
    if (is_registered(inputs[i])) {
      tensor.set_data(moved);
    } else {
      tensor = moved;
    }
  }
  parts_->set_home({device.value_or(parts_->home.device), dtype.value_or(parts_->home.type)});
}

void ProgramImpl::to(torch::Device device, torch::Dtype dtype, bool non_blocking) {
  move(device, dtype, non_blocking);
}

void ProgramImpl::to(torch::Dtype dtype, bool non_blocking) {
  move(std::nullopt, dtype, non_blocking);
}

void ProgramImpl::to(torch::Device device, bool non_blocking) {
  move(device, std::nullopt, non_blocking);
}

void ProgramImpl::pretty_print(std::ostream& stream) const {
  stream << "lockstep::Program(" << parts_->source->name << ")";
}

}  // namespace lockstep
