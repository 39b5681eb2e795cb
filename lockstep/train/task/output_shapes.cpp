#include <lockstep/train/task/output_shapes.h>

#include <algorithm>
#include <array>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include <ATen/record_function.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <lockstep/program/module_shapes.h>
#include <lockstep/train/task/data_flow_shapes.h>

namespace lockstep::train {
namespace {

// What the forward has shown so far.
struct Observed {
  OutputShapes shapes{};
  ForwardRecord record{};
  int depth = 0;  // above 0 within an operation or within a layer that a Sequential calls
};

bool is_layer(const torch::nn::Module& module) {
  return module.children().empty() && module.name().starts_with("torch::nn::");
}

// --- Modules called by a Sequential ---

// Replaces a module of a Sequential and observes its output.
class WatchedModule final : public torch::nn::Module {
 public:
  WatchedModule(torch::nn::AnyModule inner, Observed& observed)
      : inner_(std::move(inner)), observed_(observed) {}

  // Throws if the module takes or returns anything other than a tensor.
  torch::Tensor forward(torch::Tensor input) {
    const torch::nn::Module& inner = *inner_.ptr();
    observed_.record.add_call(inner, {input}, {});
    const int depth = observed_.depth;
    if (is_layer(inner)) ++observed_.depth;  // its operations need no attribution
    torch::Tensor output = inner_.forward<torch::Tensor>(std::move(input));
    observed_.depth = depth;
    observed_.record.add_call(inner, {}, {output});
    if (output.defined()) observed_.shapes[&inner] = output.sizes().vec();
    return output;
  }

 private:
  torch::nn::AnyModule inner_;
  Observed& observed_;
};

// While it lives, the modules that a Sequential calls are watched. Its registered children, and
// thus its parameters, stay unchanged.
class WatchedSequential {
 public:
  WatchedSequential(torch::nn::SequentialImpl& sequential, Observed& observed)
      : sequential_(sequential), original_(sequential.begin(), sequential.end()) {
    for (torch::nn::AnyModule& each : sequential_) {
      each = torch::nn::AnyModule(std::make_shared<WatchedModule>(each, observed));
    }
  }
  ~WatchedSequential() { std::move(original_.begin(), original_.end(), sequential_.begin()); }
  WatchedSequential(const WatchedSequential&) = delete;
  WatchedSequential& operator=(const WatchedSequential&) = delete;

 private:
  torch::nn::SequentialImpl& sequential_;
  std::vector<torch::nn::AnyModule> original_;
};

using Modules = std::vector<torch::nn::Module*>;

// The module and its descendants, each once. Module::modules() would need a shared pointer.
void collect_modules(torch::nn::Module& module, Modules& all) {
  if (std::ranges::find(all, &module) != all.end()) return;
  all.push_back(&module);
  for (const auto& child : module.children()) collect_modules(*child, all);
}

std::vector<torch::nn::SequentialImpl*> sequentials_of(const Modules& modules) {
  std::vector<torch::nn::SequentialImpl*> found;
  for (torch::nn::Module* each : modules) {
    auto* const sequential = dynamic_cast<torch::nn::SequentialImpl*>(each);
    if (sequential != nullptr && !sequential->is_empty()) found.push_back(sequential);
  }
  return found;
}

// A Sequential returns the output of its last module.
void add_sequentials(const std::vector<torch::nn::SequentialImpl*>& sequentials,
                     OutputShapes& shapes) {
  // Inner Sequentials come after outer ones.
  for (auto each = sequentials.rbegin(); each != sequentials.rend(); ++each) {
    const auto last = shapes.find((*each)->ptr((*each)->size() - 1).get());
    if (last != shapes.end()) shapes.try_emplace(*each, last->second);
  }
}

// --- LibTorch's layers ---

// The operations of LibTorch's layers with parameters or buffers; one operation is the whole layer.
constexpr std::array<std::string_view, 22> kLayerOperations = {"aten::bilinear",
                                                               "aten::conv1d",
                                                               "aten::conv2d",
                                                               "aten::conv3d",
                                                               "aten::conv_transpose1d",
                                                               "aten::conv_transpose2d",
                                                               "aten::conv_transpose3d",
                                                               "aten::batch_norm",
                                                               "aten::instance_norm",
                                                               "aten::layer_norm",
                                                               "aten::group_norm",
                                                               "aten::embedding",
                                                               "aten::embedding_bag",
                                                               "aten::prelu",
                                                               "aten::lstm",
                                                               "aten::gru",
                                                               "aten::rnn_tanh",
                                                               "aten::rnn_relu",
                                                               "aten::lstm_cell",
                                                               "aten::gru_cell",
                                                               "aten::rnn_tanh_cell",
                                                               "aten::rnn_relu_cell"};

// The operations of torch::nn::Linear: a product with its transposed weight, and a sum with its
// bias.
constexpr std::string_view kTransposition = "aten::t";
constexpr std::array<std::string_view, 4> kLinearOperations = {"aten::addmm", "aten::matmul",
                                                               "aten::add_", "aten::linear"};

template <std::size_t count>
bool is_among(const std::array<std::string_view, count>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

using Owners = std::unordered_map<const c10::TensorImpl*, const torch::nn::Module*>;

// LibTorch's layers by their parameters and buffers. User-defined modules are excluded, because
// they may do more than one operation, and so are tensors of two layers, which identify neither.
Owners owners_of(const Modules& modules) {
  Owners owners;
  std::unordered_set<const c10::TensorImpl*> shared;
  for (const torch::nn::Module* module : modules) {
    if (!is_layer(*module)) continue;
    auto tensors = module->parameters(/*recurse=*/false);
    for (auto& buffer : module->buffers(/*recurse=*/false)) tensors.push_back(std::move(buffer));
    for (const torch::Tensor& tensor : tensors) {
      if (!tensor.defined()) continue;
      const auto [place, is_new] = owners.emplace(tensor.unsafeGetTensorImpl(), module);
      if (!is_new && place->second != module) shared.insert(tensor.unsafeGetTensorImpl());
    }
  }
  for (const c10::TensorImpl* tensor : shared) owners.erase(tensor);
  return owners;
}

// The state of this thread's callbacks, which are plain functions. LibTorch also calls them on
// threads that compute for this one, on which no watch is set.
struct LayerWatch {
  Owners owners{};
  std::vector<torch::Tensor> transposed{};  // weights, which are also in `owners`
  Observed* observed = nullptr;
};
thread_local LayerWatch* layer_watch = nullptr;

struct WatchedOperation final : at::ObserverContext {
  const torch::nn::Module* module = nullptr;  // the layer that it belongs to, if known
  std::optional<std::size_t> step{};          // in the record
};

const torch::nn::Module* owner_of(const c10::IValue& value) {
  if (layer_watch == nullptr) return nullptr;
  const auto owner = [](const torch::Tensor& tensor) -> const torch::nn::Module* {
    const auto found = layer_watch->owners.find(tensor.unsafeGetTensorImpl());
    return found == layer_watch->owners.end() ? nullptr : found->second;
  };
  if (value.isTensor()) return value.toTensor().defined() ? owner(value.toTensor()) : nullptr;
  if (!value.isTensorList()) return nullptr;
  for (const torch::Tensor& tensor : value.toTensorVector()) {  // outputs of a recurrent layer
    if (const auto* const found = owner(tensor)) return found;
  }
  return nullptr;
}

// A Linear transposes its weight itself and multiplies with the result, whereas another module may
// use the weight as it is, or transpose it twice.
bool is_use_by_linear(const torch::nn::LinearImpl& linear, const c10::IValue& input,
                      std::string_view operation) {
  const bool is_weight = input.isTensor() && input.toTensor().is_same(linear.weight);
  return is_weight == (operation == kTransposition || operation == "aten::linear");
}

const torch::nn::Module* layer_of(const at::RecordFunction& operation) {
  const std::string_view name = operation.name();
  const bool is_linear = name == kTransposition || is_among(kLinearOperations, name);
  if (!is_linear && !is_among(kLayerOperations, name)) return nullptr;
  for (const c10::IValue& input : operation.inputs()) {
    const torch::nn::Module* const module = owner_of(input);
    if (module == nullptr) continue;
    const auto* const linear = dynamic_cast<const torch::nn::LinearImpl*>(module);
    if (is_linear != (linear != nullptr)) continue;
    if (linear == nullptr || is_use_by_linear(*linear, input, name)) return module;
  }
  return nullptr;
}

std::unique_ptr<at::ObserverContext> operation_begins(const at::RecordFunction& operation) {
  if (layer_watch == nullptr) return nullptr;
  Observed& observed = *layer_watch->observed;
  auto watched = std::make_unique<WatchedOperation>();
  watched->module = layer_of(operation);
  if (observed.depth == 0) {
    watched->step = observed.record.begin(operation.name(), operation.inputs());
  }
  // An operation within another one, such as those of at::linear(), tells whose the latter is.
  if (watched->module != nullptr) observed.record.set_module_of_last(*watched->module);
  ++observed.depth;
  return watched;
}

void operation_ends(const at::RecordFunction& operation, at::ObserverContext* context) {
  const auto* const watched = dynamic_cast<const WatchedOperation*>(context);
  if (watched == nullptr) return;
  Observed& observed = *layer_watch->observed;
  --observed.depth;
  if (watched->step) observed.record.end(*watched->step, operation.outputs());
  if (watched->module == nullptr || operation.outputs().empty()) return;
  const c10::IValue& output = operation.outputs().front();
  if (!output.isTensor() || !output.toTensor().defined()) return;
  if (operation.name() == kTransposition) {
    layer_watch->transposed.push_back(output.toTensor());
    layer_watch->owners[output.toTensor().unsafeGetTensorImpl()] = watched->module;
    return;
  }
  observed.shapes[watched->module] = output.toTensor().sizes().vec();
}

class LayerWatchScope {
 public:
  explicit LayerWatchScope(LayerWatch& watch)
      : handle_(
            at::addThreadLocalCallback(at::RecordFunctionCallback(operation_begins, operation_ends)
                                           .needsInputs(true)
                                           .needsOutputs(true)
                                           .scopes({at::RecordScope::FUNCTION}))) {
    layer_watch = &watch;
  }
  ~LayerWatchScope() {
    at::removeCallback(handle_);
    layer_watch = nullptr;
  }
  LayerWatchScope(const LayerWatchScope&) = delete;
  LayerWatchScope& operator=(const LayerWatchScope&) = delete;

 private:
  at::CallbackHandle handle_;
};

}  // namespace

WatchedShapes watch_output_shapes(torch::nn::Module& module,
                                  const std::function<torch::Tensor()>& forward) {
  Modules modules;
  collect_modules(module, modules);
  const auto sequentials = sequentials_of(modules);
  Observed observed;
  LayerWatch watch{.owners = owners_of(modules), .observed = &observed};
  const LayerWatchScope scope(watch);
  program::ModuleShapes programs;
  const program::ModuleShapesScope programs_scope(programs);
  torch::Tensor output;
  try {
    std::vector<std::unique_ptr<WatchedSequential>> watched;
    for (torch::nn::SequentialImpl* each : sequentials) {
      watched.push_back(std::make_unique<WatchedSequential>(*each, observed));
    }
    output = forward();
  } catch (const std::exception&) {
    // A Sequential may pass on something other than a tensor. Any other failure will recur.
    observed = {};
    output = forward();
  }
  add_sequentials(sequentials, observed.shapes);
  if (output.defined()) observed.shapes[&module] = output.sizes().vec();
  observed.shapes.merge(programs.outputs);
  add_data_flow_shapes(observed.record, modules, output, observed.shapes);
  OutputShapes last = std::move(programs.last_operations);
  last.merge(last_operation_shapes(observed.record, modules, observed.shapes));
  return {.outputs = std::move(observed.shapes), .last_operations = std::move(last)};
}

}  // namespace lockstep::train
