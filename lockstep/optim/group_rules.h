// The update rules of an optimizer's parameter groups. Internal to the optimizers.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <lockstep/optim/parameter_groups.h>
#include <lockstep/optim/update_rule.h>

namespace lockstep::detail {

/// Returns `groups` with each parameter once, under its first name. Throws ConfigError if there is
/// no group, the options are of different optimizers, a parameter is in two groups, or two
/// parameters have the same name.
std::vector<ParameterGroup> checked_groups(std::vector<ParameterGroup> groups);

/// The update rules of the groups and their learning rates. Not thread-safe.
class GroupRules {
 public:
  /// Throws ConfigError for invalid options.
  explicit GroupRules(const std::vector<ParameterGroup>& groups);

  std::size_t size() const { return rules_.size(); }
  UpdateRule& operator[](std::size_t group) const { return *rules_[group]; }

  /// lr() and set_lr() throw ConfigError if there is no such group.
  double lr(std::size_t group) const;
  void set_lr(std::size_t group, double lr);
  void set_lr_of_all(double lr);
  /// Sets each learning rate to `factor` times the one in its options.
  void scale_lr(double factor);

  /// Throws ConfigError if there is no such group.
  double momentum(std::size_t group) const;
  void set_momentum_of_all(double momentum);

 private:
  void require(std::size_t group) const;

  std::vector<std::unique_ptr<UpdateRule>> rules_;
  std::vector<double> base_lrs_;
};

}  // namespace lockstep::detail
