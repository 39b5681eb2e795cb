// One rank's slice of one bucket, for an optimizer that updates only this slice.
#pragma once

#include <functional>
#include <vector>

#include <torch/types.h>

#include <lockstep/optim/group_rules.h>
#include <lockstep/parallel/ddp/bucket_slices.h>

namespace lockstep::parallel {

/// Flat tensors of equal length; all but the states are views of the bucket's memory.
struct Shard {
  ElementRange slice;  ///< the range in the bucket
  torch::Tensor parameters;
  torch::Tensor gradients;
  Tensors states;  ///< in the order of UpdateRule::state_names()
  /// If ranks share memory: the elements of `slice` in each rank's gradients.
  Tensors peer_gradients;
};

/// Applies one step of the groups' rules to the given runs of a shard, whose gradients are the
/// mean.
void update_shard(const detail::GroupRules& rules, const Shard& shard,
                  const std::vector<SliceRun>& runs);

/// As above, but the values of each run's step are on the shard's device.
void update_shard_on_device(const detail::GroupRules& rules, const Shard& shard,
                            const std::vector<SliceRun>& runs,
                            const std::function<detail::DeviceStep(const SliceRun&)>& step_of);

/// Writes the mean of all ranks' gradients to `gradients`. The peers' gradients must be complete
/// and must not change until this rank has finished.
void reduce_shard(const Shard& shard, const std::vector<SliceRun>& runs);

/// Reduces and updates in one pass over memory, piece by piece, through a buffer that stays in the
/// cache: gradients are read but not written. Gives the same bits as reduce_shard() followed by
/// update_shard().
void reduce_and_update_shard(const detail::GroupRules& rules, const Shard& shard,
                             const std::vector<SliceRun>& runs);

}  // namespace lockstep::parallel
