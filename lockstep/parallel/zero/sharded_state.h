// The optimizer state for one rank's slices of the buckets, and how to save and load it unsharded.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <torch/types.h>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/parallel/ddp/bucket_memory.h>
#include <lockstep/parallel/ddp/grad_bucket.h>

namespace lockstep::parallel {

/// The state is initially zero. Each rank holds 1 / group.size() of the state, and the step counts
/// of all parameters. Remembers the parameters' places in the buckets that it was made for, but not
/// the buckets. Not thread-safe.
class ShardedState {
 public:
  /// `names` covers all parameters in `buckets`; `rule` determines which state is kept.
  ShardedState(const std::vector<GradBucket>& buckets,
               const std::vector<detail::NamedParameter>& names, const detail::UpdateRule& rule,
               ProcessGroup group);

  /// The state of this rank's slice of that bucket: one flat tensor for each state name of the
  /// rule.
  const Tensors& of_bucket(std::size_t bucket) const { return shards_[bucket]; }
  /// The step count of each parameter in that bucket.
  std::vector<std::int64_t>& steps_of_bucket(std::size_t bucket) { return steps_[bucket]; }
  const std::vector<std::int64_t>& steps_of_bucket(std::size_t bucket) const {
    return steps_[bucket];
  }

  /// The step counts of all parameters, bucket by bucket.
  std::vector<std::int64_t> all_steps() const;
  /// `steps` has the order of all_steps().
  void set_all_steps(const std::vector<std::int64_t>& steps);

  /// Collective. Rank `root` gets a copy of the state of all parameters, in the format of
  /// Optimizer::state(); the other ranks get nothing.
  NamedTensors gather(int root);

  /// Collective. Loads `whole` of rank `root`, whose tensors may be in any order. Throws
  /// CheckpointError on every rank, leaving the state unchanged, if a tensor is missing,
  /// unexpected, or of another shape or type.
  void scatter(const NamedTensors& whole, int root);

  std::int64_t bytes() const;

 private:
  struct BucketedParameter {
    std::string name;
    std::size_t bucket;
    std::size_t index;  ///< index in the bucket
    std::int64_t offset;
    std::vector<std::int64_t> sizes;
    std::vector<std::int64_t> strides;
  };
  using ByName = std::map<std::string, torch::Tensor>;
  torch::Tensor whole_bucket(std::size_t bucket) const;
  static torch::Tensor view_in(const Tensors& flats, const BucketedParameter& parameter);
  std::string key(std::size_t state, const BucketedParameter& parameter) const;
  std::string why_not(const ByName& whole) const;
  void scatter_steps(const ByName& whole, int root);

  std::vector<std::string> state_names_;
  bool counts_steps_;
  ProcessGroup group_;
  std::vector<BucketedParameter> parameters_;     // parameters of all buckets
  std::vector<Tensors> shards_;                   // by bucket, by state name
  std::vector<std::vector<std::int64_t>> steps_;  // by bucket, by parameter
  std::vector<torch::TensorOptions> options_;     // by bucket
};

}  // namespace lockstep::parallel
