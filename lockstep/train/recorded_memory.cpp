#include <lockstep/train/recorded_memory.h>

#include <cstddef>
#include <string>

#include <lockstep/core/error.h>
#include <lockstep/parallel/base/registered_tensors.h>

namespace lockstep::train {
namespace {

// `named` are the tensors of the module of that kind.
[[noreturn]] void refuse_replay(const char* what, const torch::Tensor& tensor, const char* change,
                                const torch::OrderedDict<std::string, torch::Tensor>& named) {
  std::string name = "?";
  for (const auto& item : named) {
    if (item.value().is_same(tensor)) name = item.key();
  }
  throw ConfigError(
      lockstep::str("Trainer: cuda_graph: ", what, " '", name, "' ", change,
                    " after the step was recorded, which replays would ignore; change the module "
                    "before training, or remove TrainerOptions::cuda_graph"));
}

}  // namespace

RecordedMemory::Place RecordedMemory::place_of(const torch::Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != torch::kStrided) return {};
  return {
      .address = tensor.const_data_ptr(), .type = tensor.scalar_type(), .elements = tensor.numel()};
}

RecordedMemory::Known RecordedMemory::as_now(const torch::Tensor& tensor) {
  return {.tensor = tensor,
          .own = place_of(tensor),
          .gradient = place_of(tensor.grad()),
          .requires_grad = tensor.requires_grad()};
}

RecordedMemory::RecordedMemory(torch::nn::Module& module) : module_(&module) {
  parallel::for_each_parameter(module, [this](const std::string&, const torch::Tensor& parameter) {
    parameters_.push_back(as_now(parameter));
  });
  for (const torch::Tensor& buffer : module.buffers()) {
    if (buffer.defined()) buffers_.push_back(as_now(buffer));
  }
}

// What has happened to the tensor in the place of `known`; null if nothing.
const char* RecordedMemory::change_of(const Known& known, const torch::Tensor& now) {
  if (!now.is_same(known.tensor)) return "was registered or replaced";
  if (place_of(now) != known.own) return "was moved to other memory";
  if (now.requires_grad() != known.requires_grad) {
    return known.requires_grad ? "was frozen" : "was unfrozen";
  }
  if (place_of(now.grad()) != known.gradient) return "got another gradient tensor";
  return nullptr;
}

void RecordedMemory::require_unchanged() const {
  std::size_t next = 0;
  parallel::for_each_parameter(*module_, [&](const std::string&, const torch::Tensor& parameter) {
    const char* const change = next < parameters_.size() ? change_of(parameters_[next++], parameter)
                                                         : "was registered or replaced";
    if (change == nullptr) return;
    refuse_replay("parameter", parameter, change, module_->named_parameters());
  });
  for (const Known& buffer : buffers_) {
    const char* const change = change_of(buffer, buffer.tensor);
    if (change == nullptr) continue;
    refuse_replay("buffer", buffer.tensor, change, module_->named_buffers());
  }
}

}  // namespace lockstep::train
