#include <lockstep/export/trace/recording.h>

#include <exception>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include <c10/core/GradMode.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <lockstep/core/error.h>
#include <lockstep/export/trace/module_locations.h>
#include <lockstep/export/trace/read_observer.h>

namespace lockstep::onnx {
namespace {

using torch::jit::Stack;

// The inputs, then the parameters: the tracer identifies tensors by identity, so this names the
// module's tensors that forward() uses.
Stack stack_of(const Tensors& inputs, const NamedParameters& parameters) {
  Stack stack;
  for (const at::Tensor& input : inputs) stack.emplace_back(input.clone());
  for (const auto& [name, tensor] : parameters) stack.emplace_back(tensor);
  return stack;
}

// Throws if the error is one of the tracer's own, with the remedy.
void explain(const std::exception& error) {
  const std::string text = error.what();
  if (text.find("Cannot insert a Tensor that requires grad") != std::string::npos) {
    throw ConfigError(
        "export_onnx: forward() uses a tensor that requires a gradient and is not a parameter of "
        "the module; register it with register_parameter() or register_buffer()");
  }
  if (text.find("did not have observable data dependence") != std::string::npos) {
    throw ConfigError(
        "export_onnx: an output is not computed from the inputs or parameters by operations of "
        "LibTorch, so that a trace cannot see where it comes from; compute it from the inputs, or, "
        "if it is a constant, as torch::tensor() makes it, register it with register_buffer() and "
        "return the buffer");
  }
}

// The tracer records the type in view(dtype) as an integer, and no overload of aten::view takes
// one: this would end in an assertion that names neither the place nor the overload.
void refuse_unknown_forms(const torch::jit::Graph& graph, std::size_t inputs,
                          const NamedParameters& parameters) {
  const ModuleLocations locations = module_locations_of(graph, inputs, parameters);
  for (const torch::jit::Node* node : graph.nodes()) {
    if (!node->kind().is_aten() || node->maybeOperator() != nullptr) continue;
    throw ConfigError(str("export_onnx: LibTorch's tracer cannot record the form of ",
                          node->kind().toQualString(), " that forward() calls ",
                          locations.at(node).text(),
                          ", such as view(dtype); compute the same with other operations"));
  }
}

// Autocast casts a weight in the first run and keeps the result, so that later runs have no cast. A
// rehearsal sees each call before its casts.
void refuse_autocast(const std::optional<AutocastUse>& use) {
  if (!use) return;
  throw ConfigError(lockstep::str(
      "export_onnx: forward() computes under autocast (", use->type, " on ", use->device,
      "), whose casts differ from run to run; export outside of the autocast scope, and set half "
      "for a model that computes in float16"));
}

// An operation of LibTorch switches the tracer off while it runs, and an exception leaves it off.
void refuse_caught_exception(const torch::jit::Graph& graph, std::size_t inputs,
                             const NamedParameters& parameters) {
  if (torch::jit::tracer::getTracingState() != nullptr) return;
  throw CaughtException(
      str("export_onnx: forward() catches an exception of an operation of LibTorch ",
          last_location_in(graph, inputs, parameters).text(),
          "; a trace cannot record how the exception is handled: check the operation's arguments "
          "before the call"));
}

// Where forward() threw the exception that is being handled. The tracer, which an exception of an
// operation leaves off, has recorded that operation last.
std::string place_of_failure(const torch::jit::Graph& graph, std::size_t inputs,
                             const NamedParameters& parameters) {
  ModuleLocation last = last_location_in(graph, inputs, parameters);
  if (torch::jit::tracer::getTracingState() != nullptr) last.uses_it = false;
  return last.text();
}

// "Float [2, 3], Long [2]"
std::string types_and_sizes(const Tensors& tensors) {
  std::vector<std::string> texts;
  for (const at::Tensor& tensor : tensors) {
    texts.push_back(str(c10::toString(tensor.scalar_type()), " [", join(tensor.sizes()), "]"));
  }
  return join(texts);
}

// The tensors that an operation returns; the members of a list are in the node that unpacks it.
at::ArrayRef<const torch::jit::Value*> results_of(const torch::jit::Node& node) {
  const torch::jit::Node* source = &node;
  const bool is_list =
      node.outputs().size() == 1 && node.output()->type()->kind() == c10::TypeKind::ListType;
  if (is_list) {
    for (const torch::jit::Use& use : node.output()->uses()) {
      if (use.user->kind() == c10::prim::ListUnpack) source = use.user;
    }
  }
  return source->outputs();
}

// Reads the calls out of the graph of a run that has just ended. When the tracer then finishes the
// graph, it removes and replaces operations.
class CallReader {
 public:
  explicit CallReader(const torch::jit::Graph& graph) {
    for (std::size_t i = 0; i < graph.inputs().size(); ++i) {
      origins_[graph.inputs()[i]] = {.number = i};
    }
    for (const torch::jit::Node* node : graph.nodes()) {
      if (!node->kind().is_prim()) add(*node);
    }
  }

  Argument argument(const torch::jit::Value* value) const {
    if (const auto found = origins_.find(value); found != origins_.end()) {
      return {.origin = found->second};
    }
    if (value->node()->kind() == c10::prim::ListConstruct) {
      Argument list = {.is_list = true};
      for (const torch::jit::Value* each : value->node()->inputs()) {
        list.members.push_back(argument(each));
      }
      return list;
    }
    const auto constant = torch::jit::toIValue(value);
    return {.constant = constant.value_or(c10::IValue()), .varies = !constant};
  }

  std::vector<Call> take() { return std::move(calls_); }

 private:
  void add(const torch::jit::Node& node) {
    Call call = {.name = node.kind().toQualString(),
                 .node = &node,
                 .has_schema = node.maybeSchema() != nullptr};
    for (const torch::jit::Value* input : node.inputs()) call.arguments.push_back(argument(input));
    // The tracer records copy_() without its third argument, non_blocking.
    if (call.name == "aten::copy_" && call.arguments.size() == 3) call.arguments[2].varies = true;
    for (const torch::jit::Value* result : results_of(node)) {
      origins_[result] = {.call = calls_.size(), .number = call.results.size()};
      call.results.push_back(result->type()->cast<c10::TensorType>());
    }
    calls_.push_back(std::move(call));
  }

  std::vector<Call> calls_;
  std::unordered_map<const torch::jit::Value*, Origin> origins_;
};

void forget_removed_nodes(std::vector<Call>& calls, const torch::jit::Graph& graph) {
  const std::unordered_set<const torch::jit::Node*> kept(graph.nodes().begin(),
                                                         graph.nodes().end());
  for (Call& call : calls) {
    // A node that the tracer replaces by one with LibTorch's usual name is gone, too.
    const bool is_kept = kept.contains(call.node) && call.name == call.node->kind().toQualString();
    if (!is_kept) call.node = nullptr;
  }
}

}  // namespace

Recording record(const Forward& forward, const Tensors& inputs, const NamedParameters& parameters,
                 const std::string& other_inputs, const std::string& advice) {
  const at::NoGradGuard no_grad;
  Recording recording;
  ReadObserver observer(inputs.size(), parameters, recording.reads);
  std::shared_ptr<torch::jit::Graph> unfinished;
  std::string failed_at;  // empty unless forward() has thrown
  const auto run = [&](Stack stack) {
    unfinished = torch::jit::tracer::getTracingState()->graph;
    stack.resize(inputs.size());
    Tensors given;
    for (const auto& value : stack) given.push_back(value.toTensor());
    try {
      recording.outputs = forward(given);
    } catch (...) {
      failed_at = place_of_failure(*unfinished, inputs.size(), parameters);
      throw;
    }
    refuse_caught_exception(*unfinished, inputs.size(), parameters);
    observer.finish();
    refuse_autocast(observer.autocast());
    CallReader reader(*unfinished);
    for (const at::Tensor& output : recording.outputs) {
      // The tracer refuses an output that it does not know when this function returns.
      const bool is_known = torch::jit::tracer::getTracingState()->hasValue(output);
      recording.output_origins.push_back(
          is_known ? reader.argument(torch::jit::tracer::getValueTrace(output))
                   : Argument{.varies = true});
    }
    recording.calls = reader.take();
    return Stack(recording.outputs.begin(), recording.outputs.end());
  };
  try {
    const auto [state, ignored] = torch::jit::tracer::trace(
        stack_of(inputs, parameters), run, [](const at::Tensor&) { return std::string(); });
    recording.graph = state->graph;
    forget_removed_nodes(recording.calls, *recording.graph);
    // Copied, because a later run may write to memory that this run returned.
    for (at::Tensor& output : recording.outputs) {
      if (output.defined()) output = output.clone();
    }
  } catch (const std::exception& error) {
    explain(error);
    const bool is_of_libtorch = dynamic_cast<const c10::Error*>(&error) != nullptr;
    if (failed_at.empty()) {
      if (is_of_libtorch && unfinished != nullptr) {
        refuse_unknown_forms(*unfinished, inputs.size(), parameters);
      }
      throw;
    }
    const bool is_example = other_inputs.empty();
    if (is_example && !is_of_libtorch) throw;
    std::throw_with_nested(ConfigError(
        str("export_onnx: forward() fails with ", is_example ? "the example" : other_inputs, " (",
            types_and_sizes(inputs), ") ", failed_at, ": ", first_line(error), advice)));
  }
  return recording;
}

Tensors replay(const Recording& recording, const Tensors& inputs,
               const NamedParameters& parameters) {
  const at::NoGradGuard no_grad;
  const torch::jit::Code code(recording.graph, "lockstep_export");
  Stack stack = stack_of(inputs, parameters);
  torch::jit::InterpreterState(code).run(stack);
  Tensors outputs;
  for (const auto& value : stack) {
    if (value.isTensor()) {
      outputs.push_back(value.toTensor());
      continue;
    }
    // The tracer joins several outputs into a tuple.
    for (const auto& element : value.toTupleRef().elements()) {
      outputs.push_back(element.toTensor());
    }
  }
  return outputs;
}

}  // namespace lockstep::onnx
