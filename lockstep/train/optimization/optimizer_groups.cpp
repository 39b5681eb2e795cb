#include <lockstep/train/optimization/optimizer_groups.h>

#include <utility>
#include <variant>

namespace lockstep {

double lr_of(const OptimizerOptions& options) {
  return std::visit([](const auto& each) { return each.lr; }, options);
}

OptimizerGroups::OptimizerGroups(const std::vector<ParameterGroup>& groups) {
  for (const ParameterGroup& group : groups) {
    for (const auto& [name, parameter] : group.parameters) group_of_[name] = options_.size();
    options_.push_back(group.options);
  }
}

std::vector<double> OptimizerGroups::lrs() const {
  std::vector<double> rates;
  for (const OptimizerOptions& each : options_) rates.push_back(lr_of(each));
  return rates;
}

OptimizerGroups::Part OptimizerGroups::part_of(const NamedTensors& parameters) const {
  if (group_of_.empty()) {
    return {.groups = {{.parameters = parameters, .options = options_.front()}}, .indices = {0}};
  }
  std::vector<NamedTensors> members(options_.size());
  for (const auto& [name, parameter] : parameters) {
    const auto found = group_of_.find(name);
    if (found != group_of_.end()) members[found->second].emplace_back(name, parameter);
  }
  Part part;
  for (std::size_t group = 0; group < members.size(); ++group) {
    if (members[group].empty()) continue;
    part.groups.push_back({.parameters = std::move(members[group]), .options = options_[group]});
    part.indices.push_back(group);
  }
  return part;
}

}  // namespace lockstep
