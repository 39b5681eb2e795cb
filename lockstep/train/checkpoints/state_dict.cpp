#include <lockstep/train/checkpoints/state_dict.h>

#include <unordered_map>
#include <unordered_set>

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

void check_matches(const std::string& name, const torch::Tensor& expected, const torch::Tensor& got,
                   const std::string& origin) {
  if (got.sizes() != expected.sizes()) {
    throw CheckpointError(lockstep::str(origin, ": ", name, " has shape ", got.sizes(),
                                        ", the model expects ", expected.sizes()));
  }
  if (got.scalar_type() != expected.scalar_type()) {
    throw CheckpointError(lockstep::str(origin, ": ", name, " is ", got.scalar_type(),
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
  copy_state(state, state_dict(module), "load_state_dict");
}

void copy_state(const StateDict& from, const StateDict& to, const std::string& origin) {
  const std::unordered_map<std::string, torch::Tensor> given(from.begin(), from.end());
  std::unordered_set<std::string> expected;
  for (const auto& [name, tensor] : to) {
    const auto found = given.find(name);
    if (found == given.end()) {
      throw CheckpointError(lockstep::str(origin, ": ", name, " is missing"));
    }
    check_matches(name, tensor, found->second, origin);
    expected.insert(name);
  }
  for (const auto& [name, tensor] : from) {
    if (!expected.contains(name)) {
      throw CheckpointError(lockstep::str(origin, ": ", name, " is not in the model"));
    }
  }
  const torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : to) tensor.copy_(given.at(name));
}

}  // namespace lockstep
