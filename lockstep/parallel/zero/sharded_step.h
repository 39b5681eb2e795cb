// One optimizer for all ranks: each updates its slices of the buckets and holds the state of these.
// Internal to ZeroRedundancyOptimizer, which knows how the buckets came about.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <torch/types.h>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/optim/group_rules.h>
#include <lockstep/parallel/ddp/bucket_memory.h>
#include <lockstep/parallel/ddp/grad_bucket.h>
#include <lockstep/parallel/ddp/reduced_gradients.h>
#include <lockstep/parallel/zero/shard.h>
#include <lockstep/parallel/zero/sharded_state.h>

namespace lockstep {

/// Takes the buckets as they are at each call; all must be of one layout, which may change: the
/// state moves along. Not thread-safe; failures as those of the group.
class ShardedStep {
 public:
  /// `groups` as checked_groups() returns them, with all parameters of the buckets. ConfigError
  /// when their rules remember different things. `memory` is kFlat or kShared, as the buckets have
  /// it.
  ShardedStep(const std::vector<ParameterGroup>& groups, ProcessGroup group,
              ParameterMemory memory);

  /// The buckets' communication hook; `layout_is_final` once this backward's end changes no layout.
  std::shared_ptr<Work> reduce(const GradBucket& bucket, bool layout_is_final);

  /// Collective. All as ZeroRedundancyOptimizer has them.
  void step(const std::vector<GradBucket>& buckets);
  Tensors mean_gradients(const std::vector<GradBucket>& buckets);
  NamedTensors gather_state(const std::vector<GradBucket>& buckets, int root);
  void scatter_state(const std::vector<GradBucket>& buckets, const NamedTensors& whole, int root);

  /// Gradients have been made zero: those of the next backward are the first.
  void forget_gradients() { reduced_.clear(); }

  GroupRules& rules() { return rules_; }
  const GroupRules& rules() const { return rules_; }
  double communication_seconds() const { return communication_seconds_; }
  std::int64_t state_bytes() const { return state_ ? state_->bytes() : 0; }

 private:
  void require_in_place(const std::vector<GradBucket>& buckets);
  void follow_layout(const std::vector<GradBucket>& buckets);
  void meet();
  void reduce_shared(const std::vector<GradBucket>& buckets);
  void step_flat(const std::vector<GradBucket>& buckets);
  void step_shared(const std::vector<GradBucket>& buckets);
  std::vector<SliceRun> runs_of(const GradBucket& bucket) const;
  void count_step(const std::vector<GradBucket>& buckets);

  const std::vector<NamedParameter> names_;  // of all groups
  std::unordered_map<const torch::TensorImpl*, std::size_t> group_of_;
  GroupRules rules_;
  ProcessGroup group_;
  const bool shared_;
  const bool keeps_zeros_;
  bool used_ = false;  // the state is not that of the beginning
  /// Of these, this rank's slices hold the mean and the others' what this rank computed.
  ReducedGradients reduced_;
  std::uint64_t layout_ = 0;
  double communication_seconds_ = 0;
  std::vector<std::vector<std::size_t>> groups_of_buckets_;  // by bucket, by parameter
  std::optional<ShardedState> state_;
  std::vector<Shard> shards_;
};

}  // namespace lockstep
