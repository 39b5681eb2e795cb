#include <lockstep/models/state_dict.h>

#include <unordered_map>

#include <lockstep/core/error.h>

namespace lockstep {
namespace {

void collect(const torch::nn::Module& module, const std::string& prefix, StateDict& state) {
  for (const auto& item : module.named_parameters(/*recurse=*/false)) {
    if (item.value().defined()) state.emplace_back(prefix + item.key(), item.value().detach());
  }
  for (const auto& item : module.named_buffers(/*recurse=*/false)) {
    if (item.value().defined()) state.emplace_back(prefix + item.key(), item.value().detach());
  }
  for (const auto& child : module.named_children()) {
    collect(*child.value(), prefix + child.key() + ".", state);
  }
}

void check_matches(const std::string& name, const torch::Tensor& expected, const torch::Tensor& got) {
  if (got.sizes() != expected.sizes()) {
    throw CheckpointError(str("load_state_dict: ", name, " has shape ", got.sizes(),
                              ", the model expects ", expected.sizes()));
  }
  if (got.scalar_type() != expected.scalar_type()) {
    throw CheckpointError(str("load_state_dict: ", name, " is ", got.scalar_type(),
                              ", the model expects ", expected.scalar_type()));
  }
}

}  // namespace

StateDict state_dict(const torch::nn::Module& module) {
  StateDict state;
  collect(module, "", state);
  return state;
}

void load_state_dict(torch::nn::Module& module, const StateDict& state) {
  std::unordered_map<std::string, torch::Tensor> given(state.begin(), state.end());
  const StateDict own = state_dict(module);
  std::unordered_map<std::string, torch::Tensor> expected(own.begin(), own.end());
  for (const auto& [name, tensor] : own) {
    const auto found = given.find(name);
    if (found == given.end()) throw CheckpointError(str("load_state_dict: ", name, " is missing"));
    check_matches(name, tensor, found->second);
  }
  for (const auto& [name, tensor] : state) {
    if (!expected.contains(name)) {
      throw CheckpointError(str("load_state_dict: ", name, " is not in the model"));
    }
  }
  const torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : own) tensor.copy_(given.at(name));
}

}  // namespace lockstep
