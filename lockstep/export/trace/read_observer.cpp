#include <lockstep/export/trace/read_observer.h>

#include <algorithm>
#include <cstring>
#include <set>

#include <torch/csrc/jit/frontend/tracer.h>

#include <lockstep/export/trace/module_locations.h>

namespace lockstep::onnx {
namespace {

using torch::jit::Value;

// LibTorch's callbacks are plain functions.
thread_local ReadObserver* current_observer = nullptr;

std::unique_ptr<at::ObserverContext> observe_read(const at::RecordFunction& function) {
  if (current_observer == nullptr) return nullptr;
  const auto inputs = function.inputs();
  const bool compares = std::strcmp(function.name(), "aten::equal") == 0;
  if (compares) {
    current_observer->on_comparison(inputs[0].toTensor(), inputs[1].toTensor());
  } else if (std::strcmp(function.name(), "aten::_local_scalar_dense") == 0) {
    current_observer->on_read(inputs[0].toTensor());
  }
  return nullptr;
}

}  // namespace

ReadObserver::ReadObserver(std::size_t inputs, const NamedParameters& parameters,
                           std::vector<std::string>& reads)
    : inputs_(inputs), parameters_(parameters), reads_(reads) {
  current_observer = this;
  callback_ = at::addThreadLocalCallback(at::RecordFunctionCallback(observe_read)
                                             .needsInputs(true)
                                             .scopes({at::RecordScope::FUNCTION}));
}

ReadObserver::~ReadObserver() {
  at::removeCallback(callback_);
  current_observer = nullptr;
}

void ReadObserver::on_read(const at::Tensor& tensor) {
  const auto& state = torch::jit::tracer::getTracingState();
  // Calls inside LibTorch's operations, which check their arguments, are not traced.
  if (state == nullptr || !state->hasValue(tensor)) return;
  if (depends_on_inputs(state->getValue(tensor))) reads_.push_back(last_parameter());
}

void ReadObserver::on_comparison(const at::Tensor& a, const at::Tensor& b) {
  const bool in_attention =
      std::any_of(parameters_.begin(), parameters_.end(), [](const auto& parameter) {
        return parameter.first.ends_with("in_proj_weight") ||
               parameter.first.ends_with("q_proj_weight");
      });
  if (a.is_same(b) || in_attention) return;
  on_read(a);
  on_read(b);
}

bool ReadObserver::depends_on_inputs(const Value* value) const {
  const auto& graph = *torch::jit::tracer::getTracingState()->graph;
  const auto first = graph.inputs().begin();
  const std::set<const Value*> inputs(first, first + static_cast<std::ptrdiff_t>(inputs_));
  std::set<const Value*> seen;
  std::vector<const Value*> open = {value};
  while (!open.empty()) {
    const Value* const each = open.back();
    open.pop_back();
    if (!seen.insert(each).second) continue;
    if (inputs.contains(each)) return true;
    const auto sources = each->node()->inputs();
    if (each->node()->kind() != c10::prim::Param) {
      open.insert(open.end(), sources.begin(), sources.end());
    }
  }
  return false;
}

std::string ReadObserver::last_parameter() const {
  const auto& graph = *torch::jit::tracer::getTracingState()->graph;
  const auto locations = module_locations_of(graph, inputs_, parameters_);
  std::string last;
  for (const torch::jit::Node* node : graph.nodes()) last = locations.at(node).parameter;
  return last;
}

}  // namespace lockstep::onnx
