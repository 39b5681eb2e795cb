// One optimizer over all ranks: each rank updates its slices of the buckets and holds their state.
// Internal to ZeroRedundancyOptimizer, which controls how the buckets are made.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <torch/types.h>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/optim/device_counts.h>
#include <lockstep/optim/group_rules.h>
#include <lockstep/parallel/ddp/bucket_memory.h>
#include <lockstep/parallel/ddp/grad_bucket.h>
#include <lockstep/parallel/ddp/reduced_gradients.h>
#include <lockstep/parallel/zero/shard.h>
#include <lockstep/parallel/zero/sharded_state.h>

namespace lockstep::detail {

/// Takes the current buckets at each call. They must all have the same layout version; when it
/// changes, the state moves with it. Not thread-safe; errors are those of the group.
class ShardedStep {
 public:
  /// `groups` come from checked_groups() and contain all parameters of the buckets. Throws
  /// ConfigError if their rules keep different state. `memory` is kFlat or kShared, matching the
  /// buckets.
  ShardedStep(const std::vector<ParameterGroup>& groups, ProcessGroup group,
              ParameterMemory memory);

  /// The buckets' communication hook. `layout_is_final` says that the end of this backward will not
  /// change the buckets' layout.
  std::shared_ptr<Work> reduce(const GradBucket& bucket, bool layout_is_final);

  /// Collective. See ZeroRedundancyOptimizer.
  void step(const std::vector<GradBucket>& buckets);
  void step_unless(const std::vector<GradBucket>& buckets, const torch::Tensor& found_inf);
  Tensors mean_gradients(const std::vector<GradBucket>& buckets);
  /// In place. Counts as communication.
  void all_reduce(const torch::Tensor& tensor, ReduceOp op);
  NamedTensors gather_state(const std::vector<GradBucket>& buckets, int root);
  void scatter_state(const std::vector<GradBucket>& buckets, const NamedTensors& whole, int root);

  /// Call it after zeroing gradients, so that those of the next backward count as the first.
  void forget_gradients() { reduced_.clear(); }

  GroupRules& rules() { return rules_; }
  const GroupRules& rules() const { return rules_; }
  double communication_seconds() const { return communication_seconds_; }
  std::int64_t state_bytes() const { return state_ ? state_->bytes() : 0; }

 private:
  void require_in_place(const std::vector<GradBucket>& buckets);
  std::string name_of(const torch::Tensor& parameter) const;
  void follow_layout(const std::vector<GradBucket>& buckets);
  void meet();
  void reduce_shared(const std::vector<GradBucket>& buckets);
  using UpdateBucket = std::function<void(const GradBucket& bucket)>;
  void step_flat(const std::vector<GradBucket>& buckets, const UpdateBucket& update);
  void step_shared(const std::vector<GradBucket>& buckets);
  std::vector<parallel::SliceRun> runs_of(const GradBucket& bucket) const;
  std::vector<parallel::SliceRun> device_runs_of(const GradBucket& bucket) const;
  void count_step(const std::vector<GradBucket>& buckets);
  void note_writes(const std::vector<GradBucket>& buckets);
  void count_on_device(const std::vector<GradBucket>& buckets);
  void fetch_counts();
  Tensors lrs_on(torch::Device device) const;

  const std::vector<detail::NamedParameter> names_;  // names of all groups' parameters
  std::unordered_map<const torch::TensorImpl*, std::size_t> group_of_;
  GroupRules rules_;
  ProcessGroup group_;
  const bool shared_;
  const bool keeps_zeros_;
  bool used_ = false;  // whether the state differs from its initial value
  /// The reduced gradients: this rank's slices hold the mean, the others what this rank computed.
  parallel::ReducedGradients reduced_;
  std::uint64_t layout_ = 0;
  double communication_seconds_ = 0;
  std::vector<std::vector<std::size_t>> groups_of_buckets_;  // by bucket, by parameter
  std::optional<parallel::ShardedState> state_;
  std::vector<parallel::Shard> shards_;

  /// Set by step_unless(): the step counts of the buckets' parameters, in their order, which
  /// replace those in `state_`. `count_of_` has the index of each parameter's count, by bucket, by
  /// parameter.
  std::optional<DeviceCounts> device_counts_;
  std::vector<std::vector<std::int64_t>> count_of_;
};

}  // namespace lockstep::detail
