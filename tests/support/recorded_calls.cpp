#include <tests/support/recorded_calls.h>

#include <cstring>
#include <set>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

namespace lockstep::testing_support {
namespace {

constexpr auto kRecordingKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

thread_local RecordedCalls* current_recording = nullptr;

bool reads_on_host(const std::string& name) {
  static const std::set<std::string> names = {
      "aten::item",    "aten::_local_scalar_dense", "aten::is_nonzero", "aten::equal",
      "aten::nonzero", "aten::_is_all_true",        "aten::allclose"};
  return names.contains(name);
}

// Whether the operation consists of other operations. These are recorded instead, because autograd
// keeps some of their tensors, which the caller does not see.
bool is_composite(const c10::OperatorHandle& operation) {
  return operation.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
         !operation.hasKernelForDispatchKey(c10::DispatchKey::CPU);
}

// Whether autocast replaces the call. The replacing call is recorded instead, because autocast is
// off during a replay.
bool is_cast_first(const c10::OperatorHandle& operation, c10::DispatchKeySet keys) {
  return keys.has(c10::DispatchKey::AutocastCPU) &&
         operation.hasKernelForDispatchKey(c10::DispatchKey::AutocastCPU);
}

template <class Function>
void for_each_tensor(const c10::IValue& value, Function&& function) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) function(value.toTensor());
  } else if (value.isTensorList()) {
    for (const torch::Tensor& tensor : value.toTensorVector()) {
      if (tensor.defined()) function(tensor);
    }
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) for_each_tensor(element, function);
  }
}

std::vector<torch::Tensor> tensors_in(const torch::jit::Stack& values) {
  std::vector<torch::Tensor> tensors;
  for (const c10::IValue& value : values) {
    for_each_tensor(value, [&](const torch::Tensor& tensor) { tensors.push_back(tensor); });
  }
  return tensors;
}

bool shares_memory(const torch::Tensor& tensor, const std::vector<torch::Tensor>& others) {
  for (const torch::Tensor& other : others) {
    if (tensor.storage().is_alias_of(other.storage())) return true;
  }
  return false;
}

void record_call(const c10::OperatorHandle& operation, c10::DispatchKeySet keys,
                 torch::jit::Stack* stack) {
  current_recording->note(operation, keys, stack);
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&record_call>());
}

}  // namespace

void RecordedCalls::note(const c10::OperatorHandle& operation, c10::DispatchKeySet keys,
                         torch::jit::Stack* stack) {
  const std::string& name = operation.schema().name();
  TORCH_CHECK(!reads_on_host(name), "operation not permitted when stream is capturing: ", name);
  const c10::DispatchKeySet below = keys.remove(kRecordingKey);
  if (is_composite(operation) || is_cast_first(operation, keys)) {
    return operation.redispatchBoxed(below, stack);
  }
  const c10::impl::ExcludeDispatchKeyGuard once(kRecordingKey);
  const auto count = static_cast<std::ptrdiff_t>(operation.schema().arguments().size());
  Call call{
      .operation = operation, .arguments = {stack->end() - count, stack->end()}, .results = {}};
  keep_written(operation, call.arguments);
  operation.redispatchBoxed(below, stack);
  const auto results = static_cast<std::ptrdiff_t>(operation.schema().returns().size());
  call.results.assign(stack->end() - results, stack->end());
  calls_.push_back(std::move(call));
}

void RecordedCalls::keep_written(const c10::OperatorHandle& operation,
                                 const torch::jit::Stack& arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto* const alias = operation.schema().arguments()[i].alias_info();
    if (alias == nullptr || !alias->isWrite()) continue;
    for_each_tensor(arguments[i], [&](const torch::Tensor& tensor) { keep(tensor); });
  }
}

void RecordedCalls::keep(const torch::Tensor& tensor) {
  const c10::Storage& storage = tensor.storage();
  if (written_.contains(storage.unsafeGetStorageImpl())) return;
  std::string bytes(static_cast<const char*>(storage.data()), storage.nbytes());
  written_.emplace(storage.unsafeGetStorageImpl(), std::pair(storage, std::move(bytes)));
}

void RecordedCalls::record(const std::function<void()>& work) {
  calls_.clear();
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const torch::Tensor state = generator.get_state();
  RecordedCalls* const outer = std::exchange(current_recording, this);
  std::exception_ptr failure;
  try {
    const c10::impl::IncludeDispatchKeyGuard recording(kRecordingKey);
    work();
  } catch (...) {
    failure = std::current_exception();
  }
  current_recording = outer;
  for (auto& [key, kept] : written_) {
    std::memcpy(kept.first.mutable_data(), kept.second.data(), kept.second.size());
  }
  written_.clear();
  generator.set_state(state);
  if (!failure) return;
  calls_.clear();
  std::rethrow_exception(failure);
}

void RecordedCalls::replay() const {
  const torch::NoGradGuard no_grad;
  for (const Call& call : calls_) {
    torch::jit::Stack stack = call.arguments;
    call.operation.callBoxed(&stack);
    const std::vector<torch::Tensor> arguments = tensors_in(call.arguments);
    const std::vector<torch::Tensor> places = tensors_in(call.results);
    const std::vector<torch::Tensor> values = tensors_in(stack);
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (shares_memory(places[i], arguments)) continue;  // already written in place, or a view
      places[i].detach().copy_(values[i]);
    }
  }
}

}  // namespace lockstep::testing_support
