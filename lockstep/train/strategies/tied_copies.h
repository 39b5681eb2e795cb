// Weights that stages on several ranks of a pipeline share: each of these ranks has a copy.
#pragma once

#include <set>
#include <string>
#include <vector>

#include <lockstep/comm/process_group.h>
#include <lockstep/optim/parameter_groups.h>
#include <lockstep/train/strategies/named_stages.h>

namespace lockstep {

/// Adds up the gradients of the copies of each weight, so that every copy has the gradient of all
/// uses. Copies that begin with equal values and are stepped alike therefore stay equal. Shares the
/// tensors of the stages and holds the groups that it makes. Not thread-safe. Errors of the calls
/// that communicate are those of the groups.
class TiedCopies {
 public:
  /// Collective over `pipeline`. `stages` are all stages of the model, the same on all ranks, and
  /// worker_of[s] is the rank of stage s in `pipeline`. A parameter that requires a gradient is
  /// tied where stages of several ranks have it. `strategy` begins the messages of errors.
  TiedCopies(std::string strategy, const std::vector<NamedStage>& stages,
             const std::vector<int>& worker_of, ProcessGroup& pipeline);

  /// Collective over the ranks that have copies. Call it when the gradients of a step are complete
  /// on this rank. Afterwards each copy's gradient is the sum over the copies, the same bits on all
  /// ranks. A copy without a gradient counts as zeros, and a weight of which no copy has a gradient
  /// keeps none. ConfigError for a sparse gradient.
  void add_up();

  /// The names of this rank's tied parameters that an earlier rank of the pipeline has, too. The
  /// first rank that has a parameter counts it in norms, and sends it to be saved.
  const std::set<std::string>& counted_elsewhere() const { return counted_elsewhere_; }

  /// Aborts the groups of the copies on all ranks, as ProcessGroup::abort() does.
  void abort(const std::string& reason);

 private:
  // Parameters that the same ranks have.
  struct Row {
    ProcessGroup group;
    NamedTensors copies{};
  };
  void add_up_row(Row& row) const;

  std::string strategy_;
  std::vector<Row> rows_;  // those of this rank, on all ranks in one order
  std::set<std::string> counted_elsewhere_;
};

}  // namespace lockstep
