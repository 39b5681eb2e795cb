#include <lockstep/export/trace/same_results.h>

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/TracerMode.h>
#include <ATen/record_function.h>
#include <torch/csrc/jit/frontend/tracer.h>

#include <lockstep/core/error.h>
#include <lockstep/export/trace/module_locations.h>

namespace lockstep::onnx {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

// LibTorch's operations may add in a different order for a different memory layout. Relative to an
// element, or where terms cancel out to the largest element or to 1, whichever is less.
constexpr double kReplayTolerance = 1e-4;

constexpr const char* kOutsideOfLibTorch =
    "forward() computes something outside of LibTorch's operations (through data_ptr(), an "
    "accessor "
    "or another library), which no model would do: write it with LibTorch's operations";

// The largest finite element's size.
double magnitude_of(const at::Tensor& numbers) {
  if (numbers.numel() == 0) return 0;
  return numbers.abs().masked_fill(numbers.isfinite().logical_not(), 0).max().item<double>();
}

bool is_same(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (a.sizes() != b.sizes()) return false;
  const at::Tensor expected = b.to(at::kDouble);
  return at::allclose(a.to(at::kDouble), expected, kReplayTolerance,
                      kReplayTolerance * std::min(magnitude_of(expected), 1.0), /*equal_nan=*/true);
}

// A value, as the position of its operation in the graph and its index among the operation's
// results. Two recordings of the same operations have the same positions.
using Position = std::pair<std::size_t, std::size_t>;
using Results = std::map<Position, at::Tensor>;

std::size_t position_of(const Node& node) {
  std::size_t position = 0;
  for (const Node* each : node.owningGraph()->nodes()) {
    if (each == &node) break;
    ++position;
  }
  return position;
}

// The results of all operations, each copied immediately, because a later operation may overwrite
// it.
Results results_of(const Recording& operations, const Tensors& inputs,
                   const NamedParameters& parameters) {
  const Recording copied = {.graph = operations.graph->copy()};
  Graph& graph = *copied.graph;
  const std::vector<Node*> nodes(graph.nodes().begin(), graph.nodes().end());
  std::vector<Position> positions;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i]->kind() == c10::prim::Constant) continue;
    for (Value* output : nodes[i]->outputs()) {
      if (!output->type()->isSubtypeOf(*c10::TensorType::get())) continue;
      const torch::jit::WithInsertPoint behind(nodes[i]->next());
      graph.registerOutput(graph.insert(c10::aten::clone, {output}));
      positions.emplace_back(i, output->offset());
    }
  }
  const Tensors all = replay(copied, inputs, parameters);
  const std::size_t outputs = all.size() - positions.size();  // outputs of the model
  Results results;
  for (std::size_t i = 0; i < positions.size(); ++i) results[positions[i]] = all[outputs + i];
  return results;
}

// LibTorch's callbacks are plain functions.
class ResultObserver;
thread_local ResultObserver* current_result_observer = nullptr;

// While it lives, compares the result of each operation traced on this thread with `expected`. Only
// one observer per thread.
class ResultObserver {
 public:
  explicit ResultObserver(const Results& expected) : expected_(expected) {
    current_result_observer = this;
    callback_ = at::addThreadLocalCallback(at::RecordFunctionCallback(on_begin, on_end)
                                               .needsOutputs(true)
                                               .scopes({at::RecordScope::FUNCTION}));
  }
  ~ResultObserver() {
    at::removeCallback(callback_);
    current_result_observer = nullptr;
  }
  ResultObserver(const ResultObserver&) = delete;
  ResultObserver& operator=(const ResultObserver&) = delete;

  // The position of the first operation whose result differs.
  std::optional<std::size_t> first_difference() const { return first_difference_; }

 private:
  static std::unique_ptr<at::ObserverContext> on_begin(const at::RecordFunction&) {
    return nullptr;
  }
  static void on_end(const at::RecordFunction& function, at::ObserverContext*) {
    if (current_result_observer != nullptr) current_result_observer->compare(function.outputs());
  }

  void compare(const std::vector<c10::IValue>& outputs) {
    const auto& state = torch::jit::tracer::getTracingState();
    // Operations called inside LibTorch's operations are not traced.
    if (state == nullptr || first_difference_) return;
    const at::DisableRecordFunctionGuard unobserved;
    const at::tracer::impl::NoTracerDispatchMode untraced;
    for (const c10::IValue& output : outputs) {
      if (output.isTensor()) compare(*state, output.toTensor());
      if (!output.isTensorList()) continue;
      for (const at::Tensor& each : output.toTensorVector()) compare(*state, each);
    }
  }
  void compare(torch::jit::tracer::TracingState& state, const at::Tensor& output) {
    if (first_difference_ || !output.defined() || !state.hasValue(output)) return;
    const Value* const value = state.getValue(output);
    const std::size_t position = position_of(*value->node());
    const auto found = expected_.find({position, value->offset()});
    if (found != expected_.end() && !is_same(found->second, output)) first_difference_ = position;
  }

  const Results& expected_;
  std::optional<std::size_t> first_difference_;
  at::CallbackHandle callback_;
};

// A write that the tracer did not see shows in the next operation that reads the value.
std::string first_difference_in_words(const Recording& operations, const Run& run,
                                      const Forward& forward, const NamedParameters& parameters) {
  const Results expected = results_of(operations, run.inputs, parameters);
  const ResultObserver observer(expected);
  record(forward, run.inputs, parameters);
  const ModuleLocations locations =
      module_locations_of(*operations.graph, run.inputs.size(), parameters);
  const std::vector<const Node*> nodes(operations.graph->nodes().begin(),
                                       operations.graph->nodes().end());
  if (const auto position = observer.first_difference()) {
    const Node* const node = nodes.at(*position);
    return str("in the result of ", node->kind().toQualString(), ' ', locations.at(node).text());
  }
  return str("behind the last operation, ",
             nodes.empty() ? ModuleLocation().text() : locations.at(nodes.back()).text());
}

Tensors replay_or_refuse(const Recording& operations, const Run& run,
                         const NamedParameters& parameters) {
  try {
    return replay(operations, run.inputs, parameters);
  } catch (const std::exception&) {  // such as a constant whose size has since changed
    throw ConfigError(str("export_onnx: the recorded operations cannot be computed again with ",
                          run.condition, ", although forward() could: ", kOutsideOfLibTorch));
  }
}

}  // namespace

void require_same_results(const Recording& operations, const Run& run, const Forward& forward,
                          const NamedParameters& parameters) {
  const Tensors replayed = replay_or_refuse(operations, run, parameters);
  for (std::size_t i = 0; i < run.recording.outputs.size(); ++i) {
    if (i < replayed.size() && is_same(replayed[i], run.recording.outputs[i])) continue;
    throw ConfigError(str(
        "export_onnx: output ", i, " of the recorded operations differs from forward()'s with ",
        run.condition, ", first ", first_difference_in_words(operations, run, forward, parameters),
        ": ", kOutsideOfLibTorch));
  }
}

}  // namespace lockstep::onnx
