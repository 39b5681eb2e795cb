// Steps the parameters of one group. Internal to Optimizer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <torch/types.h>

#include <lockstep/optim/flat_runs.h>
#include <lockstep/optim/parameter_groups.h>
#include <lockstep/optim/update_rule.h>

namespace lockstep {

/// One call of the rule a step, over flat tensors where parameters lie beside each other as their
/// gradients do (FlatRuns). Not thread-safe.
class GroupStep {
 public:
  /// `rule` is that of the group's options and must outlive it. The group has each parameter once.
  /// ConfigError for a parameter with holes in its memory.
  GroupStep(const ParameterGroup& group, UpdateRule& rule);

  /// ConfigError for a sparse gradient that the options do not allow.
  void require_steppable() const;
  /// Call require_steppable() first.
  void step();
  void zero_grad();
  /// As Optimizer::state().
  NamedTensors state() const;

  const Tensors& parameters() const { return parameters_; }

 private:
  using Indices = std::vector<std::size_t>;

  void step_each();
  void step_runs();
  bool same_steps();
  void look_for_runs();
  void lay_out_states();
  std::int64_t* steps() { return steps_.data_ptr<std::int64_t>(); }

  UpdateRule* rule_;
  bool allows_sparse_;
  bool allows_runs_;
  std::vector<std::string> names_;
  Tensors parameters_;
  std::vector<Tensors> states_;  // by state, then by parameter
  torch::Tensor steps_;          // of each parameter

  // Where parameters and gradients were in the last step: what stays there is worth looking at.
  Addresses addresses_;
  bool looked_ = false;
  std::optional<FlatRuns> runs_;
  std::vector<Tensors> run_states_;  // by state, then by run; `states_` are views of them
};

}  // namespace lockstep
