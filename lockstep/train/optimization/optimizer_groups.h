// The options of an optimizer's parameters, before it is known which of them a rank or stage holds.
#pragma once

#include <concepts>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include <lockstep/core/export.h>
#include <lockstep/optim/options.h>
#include <lockstep/optim/parameter_groups.h>

namespace lockstep {

/// Groups of parameters with their options, by the parameters' names in the whole model.
class LOCKSTEP_API OptimizerGroups {
 public:
  /// One group with any parameters.
  template <std::convertible_to<OptimizerOptions> Options>
  OptimizerGroups(const Options& options) : options_{options} {}  // NOLINT: implicit
  /// `groups` must not be empty.
  explicit OptimizerGroups(const std::vector<ParameterGroup>& groups);

  std::size_t size() const { return options_.size(); }
  const std::vector<OptimizerOptions>& options() const { return options_; }
  /// The learning rate in each group's options.
  std::vector<double> lrs() const;

  /// Some groups, without empty ones.
  struct Part {
    std::vector<ParameterGroup> groups{};
    std::vector<std::size_t> indices{};  ///< places of these groups among all
  };
  /// The groups of `parameters`; parameters that belong to no group are left out.
  Part part_of(const NamedTensors& parameters) const;

 private:
  std::vector<OptimizerOptions> options_;
  std::map<std::string, std::size_t> group_of_;  // empty: all are in the first one
};

/// The learning rate in `options`.
LOCKSTEP_API double lr_of(const OptimizerOptions& options);

}  // namespace lockstep
