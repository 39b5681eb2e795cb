#include <lockstep/export/trace/read_observer.h>

#include <algorithm>
#include <set>

#include <ATen/autocast_mode.h>
#include <torch/csrc/jit/frontend/tracer.h>

#include <lockstep/export/trace/module_locations.h>

namespace lockstep::onnx {
namespace {

using torch::jit::Value;

// LibTorch's callbacks are plain functions.
thread_local ReadObserver* current_observer = nullptr;

std::unique_ptr<at::ObserverContext> on_begin(const at::RecordFunction& function) {
  if (current_observer != nullptr) current_observer->begin(function.name(), function.inputs());
  return nullptr;
}

void on_end(const at::RecordFunction& function, at::ObserverContext*) {
  if (current_observer != nullptr) current_observer->end(function.name());
}

// Autocast is on for the operations of some devices.
std::optional<AutocastUse> autocast_of(c10::ArrayRef<const c10::IValue> arguments) {
  for (const c10::IValue& argument : arguments) {
    if (!argument.isTensor() || !argument.toTensor().defined()) continue;
    const c10::DeviceType device = argument.toTensor().device().type();
    if (!at::autocast::is_autocast_available(device)) continue;
    if (!at::autocast::is_autocast_enabled(device)) continue;
    return AutocastUse{.device = device, .type = at::autocast::get_autocast_dtype(device)};
  }
  return std::nullopt;
}

}  // namespace

ReadObserver::ReadObserver(std::size_t inputs, const NamedParameters& parameters,
                           std::vector<std::string>& reads)
    : inputs_(inputs), parameters_(parameters), reads_(reads) {
  current_observer = this;
  callback_ = at::addThreadLocalCallback(at::RecordFunctionCallback(on_begin, on_end)
                                             .needsInputs(true)
                                             .scopes({at::RecordScope::FUNCTION}));
}

ReadObserver::~ReadObserver() {
  at::removeCallback(callback_);
  current_observer = nullptr;
}

void ReadObserver::begin(const std::string& name, c10::ArrayRef<const c10::IValue> arguments) {
  if (is_comparing_) return;  // an operation inside of equal()
  if (!autocast_) autocast_ = autocast_of(arguments);
  is_comparing_ = name == "aten::equal";
  if (is_comparing_) return note_comparison(arguments[0].toTensor(), arguments[1].toTensor());
  if (takes_projection_of_attention(arguments)) forget_comparisons_of_attention();
  finish();
  if (name == "aten::_local_scalar_dense") note_read(arguments[0].toTensor(), reads_);
}

void ReadObserver::end(const std::string& name) {
  if (name == "aten::equal") is_comparing_ = false;
}

void ReadObserver::finish() {
  for (const Comparison& each : compared_) {
    reads_.insert(reads_.end(), each.places.begin(), each.places.end());
  }
  compared_.clear();
}

// Nothing is read if both are the same.
void ReadObserver::note_comparison(const at::Tensor& a, const at::Tensor& b) {
  Comparison& added = compared_.emplace_back();
  added.first = a.unsafeGetTensorImpl();
  added.second = b.unsafeGetTensorImpl();
  if (a.is_same(b)) return;
  note_read(a, added.places);
  note_read(b, added.places);
}

// Attention compares query and key, then key and value, and these again if only the first two were
// equal. What was compared before is the module's own.
void ReadObserver::forget_comparisons_of_attention() {
  std::size_t count = compared_.size();
  if (count < 2) return;
  const Comparison last = compared_[count - 1];
  const bool is_again = last.first != last.second && compared_[count - 2].first == last.first &&
                        compared_[count - 2].second == last.second;
  if (is_again) --count;
  if (count < 2 || compared_[count - 2].second != last.first) return;
  compared_.erase(compared_.begin() + static_cast<std::ptrdiff_t>(count - 2), compared_.end());
}

bool ReadObserver::takes_projection_of_attention(c10::ArrayRef<const c10::IValue> arguments) const {
  const auto is_projection = [this](const c10::IValue& argument) {
    return argument.isTensor() &&
           std::any_of(parameters_.begin(), parameters_.end(), [&](const auto& parameter) {
             return parameter.first.ends_with("in_proj_weight") &&
                    parameter.second.is_same(argument.toTensor());
           });
  };
  return !compared_.empty() && std::any_of(arguments.begin(), arguments.end(), is_projection);
}

void ReadObserver::note_read(const at::Tensor& tensor, std::vector<std::string>& places) const {
  const auto& state = torch::jit::tracer::getTracingState();
  // Calls inside LibTorch's operations, which check their arguments, are not traced.
  if (state == nullptr || !state->hasValue(tensor)) return;
  if (depends_on_inputs(state->getValue(tensor))) places.push_back(last_parameter());
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
  return last_location_in(graph, inputs_, parameters_).parameter;
}

}  // namespace lockstep::onnx
