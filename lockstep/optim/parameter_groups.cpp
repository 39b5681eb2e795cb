#include <lockstep/optim/parameter_groups.h>

#include <map>

#include <lockstep/optim/distinct.h>

namespace lockstep {

NamedTensors trainable_parameters(const torch::nn::Module& module) {
  NamedTensors parameters;
  for (const auto& item : module.named_parameters()) {
    if (item.value().requires_grad()) parameters.emplace_back(item.key(), item.value());
  }
  return optim::distinct(parameters);
}

std::vector<ParameterGroup> group_parameters(const torch::nn::Module& module,
                                             const OptionsOfParameter& options_of) {
  std::vector<ParameterGroup> groups;
  std::map<std::map<std::string, std::string>, std::size_t> group_with;
  for (const auto& [name, parameter] : trainable_parameters(module)) {
    const OptimizerOptions options = options_of(name, parameter);
    const auto [place, is_new] = group_with.emplace(to_settings(options), groups.size());
    if (is_new) groups.push_back({.parameters = {}, .options = options});
    groups[place->second].parameters.emplace_back(name, parameter);
  }
  return groups;
}

}  // namespace lockstep
