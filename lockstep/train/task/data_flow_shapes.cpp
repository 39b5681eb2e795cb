#include <lockstep/train/task/data_flow_shapes.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <sstream>
#include <string_view>
#include <typeinfo>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <torch/nn/modules/container/moduledict.h>
#include <torch/nn/modules/container/modulelist.h>

#include <lockstep/train/task/summarize.h>

namespace lockstep::train {

ForwardRecord::Value ForwardRecord::value_of(const at::Tensor& tensor) {
  held_.emplace_back(tensor.getIntrusivePtr());
  return {.tensor = tensor.unsafeGetTensorImpl(), .shape = tensor.sizes().vec()};
}

void ForwardRecord::add_tensors(const c10::IValue& value, std::vector<Value>& to) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) to.push_back(value_of(value.toTensor()));
  } else if (value.isList()) {
    for (const c10::IValue& each : value.toListRef()) add_tensors(each, to);
  }
}

std::size_t ForwardRecord::begin(std::string operation, c10::ArrayRef<const c10::IValue> inputs) {
  Step step{.operation = std::move(operation)};
  std::ostringstream arguments;
  for (const c10::IValue& input : inputs) {
    const std::size_t tensors = step.inputs.size();
    add_tensors(input, step.inputs);
    if (step.inputs.size() == tensors && !input.isTensor()) arguments << input << ' ';
  }
  step.arguments = arguments.str();
  steps_.push_back(std::move(step));
  return steps_.size() - 1;
}

void ForwardRecord::end(std::size_t index, c10::ArrayRef<c10::IValue> outputs) {
  for (const c10::IValue& output : outputs) add_tensors(output, steps_[index].outputs);
}

void ForwardRecord::add_call(const torch::nn::Module& module, const std::vector<at::Tensor>& inputs,
                             const std::vector<at::Tensor>& outputs) {
  Step step{.module = &module};
  for (const at::Tensor& each : inputs) add_tensors(each, step.inputs);
  for (const at::Tensor& each : outputs) add_tensors(each, step.outputs);
  steps_.push_back(std::move(step));
}

namespace {

using Steps = std::vector<ForwardRecord::Step>;
using ModuleSet = std::unordered_set<const torch::nn::Module*>;

// --- Layers without parameters ---

struct PlainLayer {
  std::string_view type;
  std::string_view operation;  // or the same with an underscore, in place
  bool is_resampling = false;
};
constexpr std::array<PlainLayer, 24> kPlainLayers = {
    {{"ReLU", "aten::relu"},
     {"ReLU6", "aten::relu6"},
     {"LeakyReLU", "aten::leaky_relu"},
     {"ELU", "aten::elu"},
     {"GELU", "aten::gelu"},
     {"SiLU", "aten::silu"},
     {"Mish", "aten::mish"},
     {"Hardtanh", "aten::hardtanh"},
     {"Sigmoid", "aten::sigmoid"},
     {"Tanh", "aten::tanh"},
     {"Softmax", "aten::softmax"},
     {"LogSoftmax", "aten::log_softmax"},
     {"Dropout", "aten::dropout"},
     {"Dropout2d", "aten::feature_dropout"},
     {"Flatten", "aten::flatten"},
     {"MaxPool1d", "aten::max_pool1d", true},
     {"MaxPool2d", "aten::max_pool2d", true},
     {"MaxPool3d", "aten::max_pool3d", true},
     {"AvgPool1d", "aten::avg_pool1d", true},
     {"AvgPool2d", "aten::avg_pool2d", true},
     {"AvgPool3d", "aten::avg_pool3d", true},
     {"AdaptiveAvgPool1d", "aten::adaptive_avg_pool1d", true},
     {"AdaptiveAvgPool2d", "aten::adaptive_avg_pool2d", true},
     {"AdaptiveAvgPool3d", "aten::adaptive_avg_pool3d", true}}};

const PlainLayer* plain_layer(const torch::nn::Module& module) {
  if (!module.name().starts_with("torch::nn::")) return nullptr;
  const auto* const found =
      std::ranges::find(kPlainLayers, type_name_of(module), &PlainLayer::type);
  return found == kPlainLayers.end() ? nullptr : found;
}

// Whether the step is an operation of such a layer and not yet known to be another one's.
bool is_operation_of(const PlainLayer& layer, const ForwardRecord::Step& step) {
  std::string_view operation = step.operation;
  if (operation.ends_with('_')) operation.remove_suffix(1);
  return operation == layer.operation && step.module == nullptr && !step.outputs.empty();
}

// The layers among these modules whose shape is unknown, by their kind.
using UnknownLayers = std::map<const PlainLayer*, std::vector<const torch::nn::Module*>>;

template <class Modules>
UnknownLayers unknown_layers(const Modules& modules, const OutputShapes& shapes) {
  UnknownLayers layers;
  for (const torch::nn::Module* module : modules) {
    const PlainLayer* const kind = plain_layer(*module);
    if (kind != nullptr && !shapes.contains(module)) layers[kind].push_back(module);
  }
  return layers;
}

// The model's only pooling layer of a kind does all the pooling of this kind, if the arguments are
// always the same.
void assign_lone_poolings(ForwardRecord& record, const std::vector<torch::nn::Module*>& modules,
                          OutputShapes& shapes) {
  for (const auto& [kind, layers] : unknown_layers(modules, shapes)) {
    if (!kind->is_resampling || layers.size() != 1) continue;
    std::vector<std::size_t> found;
    std::unordered_set<std::string_view> arguments;
    for (std::size_t i = 0; i < record.steps().size(); ++i) {
      if (!is_operation_of(*kind, record.steps()[i])) continue;
      found.push_back(i);
      arguments.insert(record.steps()[i].arguments);
    }
    if (arguments.size() != 1) continue;
    for (const std::size_t i : found) {
      record.set_module(i, *layers.front());
      shapes[layers.front()] = record.steps()[i].outputs.front().shape;
    }
  }
}

// --- Calls of a module with its own forward() ---

// Steps from `earliest` until before `end` may belong to the call, those from `first` to `last` do.
struct Call {
  std::size_t earliest = 0;
  std::size_t first = 0;
  std::size_t last = 0;
  std::size_t end = 0;
};

// The last call of a module, given itself and its descendants. There is none if the descendants are
// called by other modules in between.
std::optional<Call> last_call(const Steps& steps, const ModuleSet& inside) {
  Call call;
  ModuleSet used, used_in_call;
  bool is_outside = true;
  std::size_t after_others = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].module == nullptr) continue;
    if (!inside.contains(steps[i].module)) {
      if (!is_outside) call.end = i;
      is_outside = true;
      after_others = i + 1;
      continue;
    }
    if (is_outside) {
      call = {.earliest = after_others, .first = i, .last = i, .end = steps.size()};
      used_in_call.clear();
    }
    is_outside = false;
    call.last = i;
    used.insert(steps[i].module);
    used_in_call.insert(steps[i].module);
  }
  if (used.empty() || used.size() != used_in_call.size()) return std::nullopt;
  return call;
}

// The last step that uses a tensor for something that a module computes, that the model returns, or
// that leaves LibTorch.
using LastUses = std::unordered_map<const c10::TensorImpl*, std::size_t>;

LastUses last_uses(const Steps& steps, const at::Tensor& output) {
  LastUses uses;
  if (output.defined()) uses[output.unsafeGetTensorImpl()] = steps.size();
  for (std::size_t i = steps.size(); i-- > 0;) {
    const ForwardRecord::Step& step = steps[i];
    const bool is_useful = step.module != nullptr || step.outputs.empty() ||
                           std::ranges::any_of(step.outputs, [&](const ForwardRecord::Value& each) {
                             return uses.contains(each.tensor);
                           });
    if (!is_useful) continue;
    for (const ForwardRecord::Value& input : step.inputs) uses.try_emplace(input.tensor, i);
  }
  return uses;
}

// The one shape of all tensors that leave the call, wherever between `last` and `end` it returns.
OutputShape shape_after(const Steps& steps, const Call& call, const LastUses& uses) {
  std::unordered_map<const c10::TensorImpl*, OutputShape> made;
  std::optional<OutputShape> shape;
  for (std::size_t i = call.first; i < call.end; ++i) {
    for (const ForwardRecord::Value& output : steps[i].outputs) made[output.tensor] = output.shape;
    if (i < call.last) continue;
    bool leaves = false;
    for (const auto& [tensor, tensor_shape] : made) {
      const auto use = uses.find(tensor);
      if (use == uses.end() || use->second <= i) continue;
      if (shape && *shape != tensor_shape) return {};
      shape = tensor_shape;
      leaves = true;
    }
    if (!leaves) return {};
  }
  return shape.value_or(OutputShape{});
}

// The one shape of all operations of this kind that may belong to the call. Those before its first
// step, which may as well belong to an earlier call, only count if there are no others.
OutputShape shape_of_operation(const Steps& steps, const Call& call, const PlainLayer& kind) {
  std::optional<OutputShape> shape;
  const auto look = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      if (!is_operation_of(kind, steps[i])) continue;
      if (shape && *shape != steps[i].outputs.front().shape) return false;
      shape = steps[i].outputs.front().shape;
    }
    return true;
  };
  if (!look(call.first, call.end)) return {};
  if (!shape && !look(call.earliest, call.first)) return {};
  return shape.value_or(OutputShape{});
}

void add_descendants(const torch::nn::Module& module, ModuleSet& all) {
  if (!all.insert(&module).second) return;
  for (const auto& child : module.children()) add_descendants(*child, all);
}

using Parents = std::unordered_map<const torch::nn::Module*, std::vector<const torch::nn::Module*>>;

Parents parents_of(const std::vector<torch::nn::Module*>& modules) {
  Parents parents;
  for (const torch::nn::Module* module : modules) {
    for (const auto& child : module->children()) parents[child.get()].push_back(module);
  }
  return parents;
}

// Whether only `module` and its descendants have these descendants as children.
bool owns_all(const torch::nn::Module& module, const ModuleSet& inside, const Parents& parents) {
  return std::ranges::all_of(inside, [&](const torch::nn::Module* each) {
    return each == &module ||
           std::ranges::all_of(parents.at(each), [&](const auto* p) { return inside.contains(p); });
  });
}

// A list of modules has no forward(), and neither has a plain Module.
bool has_forward(const torch::nn::Module& module) {
  return typeid(module) != typeid(torch::nn::Module) &&
         dynamic_cast<const torch::nn::ModuleListImpl*>(&module) == nullptr &&
         dynamic_cast<const torch::nn::ModuleDictImpl*>(&module) == nullptr;
}

// A module with its own forward(), and its descendants, which no other module calls.
struct Caller {
  const torch::nn::Module* module = nullptr;
  ModuleSet inside{};
  bool is_model = false;

  std::optional<Call> call(const Steps& steps) const {
    return is_model ? Call{.end = steps.size()} : last_call(steps, inside);
  }
};

std::vector<Caller> callers_of(const std::vector<torch::nn::Module*>& modules) {
  const Parents parents = parents_of(modules);
  std::vector<Caller> callers;
  for (const torch::nn::Module* module : modules) {
    Caller caller{.module = module, .is_model = module == modules.front()};
    if (!caller.is_model && (module->children().empty() || !has_forward(*module))) continue;
    add_descendants(*module, caller.inside);
    if (owns_all(*module, caller.inside, parents)) callers.push_back(std::move(caller));
  }
  return callers;
}

// If a caller has one layer of a kind, and its call may contain one operation of this kind, then
// the operation is the layer's. Returns whether there was such an operation.
bool assign_lone_operations(ForwardRecord& record, const Caller& caller, OutputShapes& shapes) {
  bool is_any = false;
  for (const auto& [kind, layers] : unknown_layers(caller.inside, shapes)) {
    const auto call = caller.call(record.steps());
    if (!call || layers.size() != 1) continue;
    std::vector<std::size_t> found;
    for (std::size_t i = call->earliest; i < call->end; ++i) {
      if (is_operation_of(*kind, record.steps()[i])) found.push_back(i);
    }
    if (found.size() != 1) continue;
    record.set_module(found.front(), *layers.front());
    shapes[layers.front()] = record.steps()[found.front()].outputs.front().shape;
    is_any = true;
  }
  return is_any;
}

using TensorSet = std::unordered_set<const c10::TensorImpl*>;

TensorSet tensors_of(const torch::nn::Module& module) {
  TensorSet tensors;
  for (const auto& each : module.parameters()) tensors.insert(each.unsafeGetTensorImpl());
  for (const auto& each : module.buffers()) tensors.insert(each.unsafeGetTensorImpl());
  return tensors;
}

// The shape of the last step that uses `module` or one of its descendants, or their tensors
// together with others.
OutputShape last_operation_shape(const Steps& steps, const torch::nn::Module& module) {
  ModuleSet inside;
  add_descendants(module, inside);
  TensorSet own = tensors_of(module);  // and what is computed from these alone
  const auto is_own = [&own](const ForwardRecord::Value& each) {
    return own.contains(each.tensor);
  };
  OutputShape shape;
  for (const ForwardRecord::Step& step : steps) {
    if (step.outputs.empty() || is_own(step.outputs.front())) continue;
    if (step.module != nullptr) {
      if (inside.contains(step.module)) shape = step.outputs.front().shape;
    } else if (!step.inputs.empty() && std::ranges::all_of(step.inputs, is_own)) {
      for (const ForwardRecord::Value& each : step.outputs) own.insert(each.tensor);
    } else if (std::ranges::any_of(step.inputs, is_own)) {
      shape = step.outputs.front().shape;
    }
  }
  return shape;
}

}  // namespace

OutputShapes last_operation_shapes(const ForwardRecord& record,
                                   const std::vector<torch::nn::Module*>& modules,
                                   const OutputShapes& known) {
  OutputShapes shapes;
  for (const torch::nn::Module* module : modules) {
    if (known.contains(module) || !has_forward(*module)) continue;
    OutputShape shape = last_operation_shape(record.steps(), *module);
    if (!shape.empty()) shapes[module] = std::move(shape);
  }
  return shapes;
}

void add_data_flow_shapes(ForwardRecord& record, const std::vector<torch::nn::Module*>& modules,
                          const at::Tensor& output, OutputShapes& shapes) {
  assign_lone_poolings(record, modules, shapes);
  const std::vector<Caller> callers = callers_of(modules);
  bool is_any = true;
  while (is_any) {  // each assignment may narrow the calls of others
    is_any = false;
    for (const Caller& caller : callers) is_any |= assign_lone_operations(record, caller, shapes);
  }
  const Steps& steps = record.steps();
  const LastUses uses = last_uses(steps, output);
  const OutputShapes known = shapes;
  for (const Caller& caller : callers) {
    const auto call = caller.call(steps);
    if (!call) continue;
    const OutputShape shape = caller.is_model ? OutputShape() : shape_after(steps, *call, uses);
    if (!shape.empty()) shapes.try_emplace(caller.module, shape);
    for (const auto& [kind, layers] : unknown_layers(caller.inside, known)) {
      if (layers.size() != 1) continue;
      const OutputShape layer_shape = shape_of_operation(steps, *call, *kind);
      if (!layer_shape.empty()) shapes.try_emplace(layers.front(), layer_shape);
    }
  }
}

}  // namespace lockstep::train
