// Weights shared by stages on several ranks of a pipeline: each of these ranks has a copy.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <torch/types.h>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/optim/parameter_groups.h>

namespace lockstep::pipeline {

using Tensors = std::vector<torch::Tensor>;

/// The weights of which several ranks have copies, by the ascending list of these ranks.
using CopiesByRanks = std::map<std::vector<int>, NamedTensors>;

/// Adds up the gradients of the copies of each weight, so that every copy has the gradient of all
/// uses. Copies that begin with equal values and are stepped alike therefore stay equal. Shares the
/// tensors of the stages and holds the groups that it makes. Not thread-safe. Calls that
/// communicate throw the groups' errors.
///
/// If replicas of the pipeline also average their gradients, the average must come before add_up():
/// its last bits may depend on a gradient's place in its bucket, which differs between the copies.
/// With a sharded optimizer each replica gets the average of its shard only, so averaging must
/// follow add_up(). The copies then stay equal over shared memory, and with two replicas over any
/// backend. With three or more replicas over Gloo, NCCL or a hierarchical group they can differ by
/// rounding.
class TiedCopies {
 public:
  /// Collective over `pipeline`. All ranks pass the same ranks and names; the tensors of weights of
  /// which this rank has no copy are not used. Error messages begin with `owner`.
  TiedCopies(std::string owner, const CopiesByRanks& copies, ProcessGroup& pipeline);

  /// Collective over the ranks that have copies. Gives all copies of a weight the values that the
  /// first of these ranks has.
  void broadcast_values();

  /// Collective over the ranks that have copies. Fills a missing gradient with zeros if another
  /// copy has one. Call it before averaging over replicas, which treats a missing gradient as an
  /// error. Throws ConfigError for a sparse gradient.
  void fill_in();

  /// Collective over the ranks that have copies. Call it once the gradients of a step are complete
  /// on this rank. Afterwards each copy's gradient is the sum over the copies, bitwise equal on all
  /// ranks. A missing gradient counts as zeros; if no copy has a gradient, none gets one. Throws
  /// ConfigError for a sparse gradient.
  void add_up();

  /// The copies' gradients before begin_step() may be sums already. It sets them aside, so that the
  /// step accumulates only its own gradients, which end_step() adds up (see add_up()) and adds to
  /// those that were set aside.
  void begin_step();
  /// Collective over the ranks that have copies.
  void end_step();

  /// Names of this rank's tied parameters that an earlier rank of the pipeline also has. The first
  /// rank that has a parameter includes it in norms and sends it to be saved.
  const std::set<std::string>& counted_elsewhere() const { return counted_elsewhere_; }

  /// Aborts the groups of the copies on all ranks, like ProcessGroup::abort().
  void abort(const std::string& reason);

 private:
  // Parameters shared by one set of ranks.
  struct Row {
    ProcessGroup group;
    NamedTensors copies{};
    Tensors before{};  // the gradients that begin_step() set aside
  };
  // The gradients of a row's copies.
  struct Gradients {
    Tensors tensors{};             // zeros where a copy has none
    std::vector<float> present{};  // 1 where a copy has one, otherwise 0
    torch::Tensor counts{};        // `present` on the copies' device, to be added up over the ranks
  };
  Gradients gradients_of(const Row& row) const;
  static void set_missing(const Row& row, const Gradients& gradients);

  std::string owner_;
  std::vector<Row> rows_;  // the rows of this rank, in one order on all ranks
  std::set<std::string> counted_elsewhere_;
  std::shared_ptr<const Tensors> marked_;  // makes is_counted_elsewhere() true for them
};

/// Whether a TiedCopies of this process has `parameter`, and an earlier rank has a copy of it and
/// includes it in norms. Thread-safe.
bool is_counted_elsewhere(const torch::Tensor& parameter);

}  // namespace lockstep::pipeline
