// Steps the parameters of one group. Internal to Optimizer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <torch/types.h>

#include <lockstep/optim/device_counts.h>
#include <lockstep/optim/flat_runs.h>
#include <lockstep/optim/parameter_groups.h>
#include <lockstep/optim/update_rule.h>

namespace lockstep::detail {

/// Calls the rule once per step, with flat tensors for parameters that are adjacent in memory and
/// have adjacent gradients (FlatRuns). Not thread-safe.
class GroupStep {
 public:
  /// `rule` belongs to the group's options and must outlive this object. The group has each
  /// parameter once. Throws ConfigError if a parameter's memory has holes or overlaps.
  GroupStep(const ParameterGroup& group, UpdateRule& rule);

  /// Throws ConfigError, which names the parameter, unless step() can step every parameter that has
  /// a gradient: see Optimizer::step() and Optimizer::step_unless().
  void require_steppable(const torch::Tensor& found_inf = {}) const;
  /// Call require_steppable() first. `found_inf` (see DeviceStep) may be given only while
  /// capturable.
  void step(const torch::Tensor& found_inf = {});
  /// See Optimizer::zero_grad().
  void zero_grad();
  /// See Optimizer::set_capturable().
  void set_capturable(bool on);
  /// Copies the rule's learning rate to the device, while capturable.
  void write_lr();
  /// See Optimizer::state().
  NamedTensors state() const;

  const Tensors& parameters() const { return parameters_; }

 private:
  using Indices = std::vector<std::size_t>;
  /// The tensors of one call of the rule.
  struct Pieces {
    Tensors parameters;
    Tensors gradients;
    std::vector<Tensors> states;
  };

  void require_alike(std::size_t i) const;
  void drop_unusable_gradients();
  void step_each();
  void step_runs();
  void step_on_device(const torch::Tensor& found_inf);
  void follow_gradients();
  Pieces pieces_of(const Indices& members);
  void touch_members();
  bool same_steps() const;
  void look_for_runs();
  void lay_out_states();
  std::int64_t* steps() const { return steps_.data_ptr<std::int64_t>(); }

  UpdateRule* rule_;
  bool allows_sparse_;
  bool allows_runs_;
  std::vector<std::string> names_;
  Tensors parameters_;
  std::vector<bool> trained_;    // by parameter: whether it required a gradient at construction
  std::vector<Tensors> states_;  // by state, then by parameter
  torch::Tensor steps_;          // for each parameter; while capturable, the counts before that

  torch::Tensor lr_;                    // on the device, while capturable
  std::optional<DeviceCounts> counts_;  // while capturable, from the first step on
  bool captured_ = false;               // a graph refers to lr_ and counts_

  // Where parameters and gradients were in the last step: runs are made only if the addresses stay
  // the same.
  Addresses addresses_;
  bool looked_ = false;
  std::optional<FlatRuns> runs_;
  std::vector<Tensors> run_states_;  // by state, then by run; `states_` are views of these
};

}  // namespace lockstep::detail
