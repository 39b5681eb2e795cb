#include <lockstep/optim/group_rules.h>

#include <string>
#include <unordered_map>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/optim/distinct.h>

namespace lockstep::detail {
namespace {

void require_one_optimizer(const std::vector<ParameterGroup>& groups) {
  if (groups.empty()) throw ConfigError("parameter groups: there is no group");
  for (std::size_t g = 1; g < groups.size(); ++g) {
    if (groups[g].options.index() == groups[0].options.index()) continue;
    throw ConfigError(lockstep::str("parameter groups: group ", g, " has options of ",
                                    to_settings(groups[g].options).at("optimizer"), ", group 0 of ",
                                    to_settings(groups[0].options).at("optimizer"),
                                    "; make an optimizer for each"));
  }
}

}  // namespace

std::vector<ParameterGroup> checked_groups(std::vector<ParameterGroup> groups) {
  require_one_optimizer(groups);
  struct GroupEntry {
    std::size_t group;
    std::string name;
  };
  std::unordered_map<const torch::TensorImpl*, GroupEntry> entries;
  std::unordered_map<std::string, std::size_t> names;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    groups[g].parameters = optim::distinct(groups[g].parameters);
    for (const auto& [name, parameter] : groups[g].parameters) {
      const auto [entry, is_new] =
          entries.emplace(parameter.unsafeGetTensorImpl(), GroupEntry{g, name});
      if (!is_new) {
        throw ConfigError(lockstep::str("parameter groups: '", name, "' of group ", g,
                                        " is in group ", entry->second.group, " as '",
                                        entry->second.name, "'; a parameter belongs to one group"));
      }
      if (!names.emplace(name, g).second) {
        throw ConfigError(lockstep::str("parameter groups: two parameters have the name '", name,
                                        "', under which their state is saved; give each its own"));
      }
    }
  }
  return groups;
}

GroupRules::GroupRules(const std::vector<ParameterGroup>& groups) {
  for (const ParameterGroup& group : groups) {
    rules_.push_back(make_update_rule(group.options));
    base_lrs_.push_back(rules_.back()->lr());
  }
}

void GroupRules::require(std::size_t group) const {
  if (group < rules_.size()) return;
  throw ConfigError(lockstep::str("optimizer: there is no parameter group ", group, ", it has ",
                                  rules_.size(), ", counted from 0"));
}

double GroupRules::lr(std::size_t group) const {
  require(group);
  return rules_[group]->lr();
}

void GroupRules::set_lr(std::size_t group, double lr) {
  require(group);
  rules_[group]->set_lr(lr);
}

void GroupRules::set_lr_of_all(double lr) {
  for (const auto& rule : rules_) rule->set_lr(lr);
}

void GroupRules::scale_lr(double factor) {
  for (std::size_t g = 0; g < rules_.size(); ++g) rules_[g]->set_lr(base_lrs_[g] * factor);
}

double GroupRules::momentum(std::size_t group) const {
  require(group);
  return rules_[group]->momentum();
}

void GroupRules::set_momentum_of_all(double momentum) {
  for (const auto& rule : rules_) rule->set_momentum(momentum);
}

}  // namespace lockstep::detail
