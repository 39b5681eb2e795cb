// One rank's slice of one bucket, for an optimizer that updates no more than that.
#pragma once

#include <vector>

#include <torch/types.h>

#include <lockstep/optim/group_rules.h>
#include <lockstep/parallel/ddp/bucket_slices.h>

namespace lockstep {

/// Flat tensors of one length, all but the states views of the bucket's memory.
struct Shard {
  ElementRange slice;  ///< of the bucket
  torch::Tensor parameters;
  torch::Tensor gradients;
  Tensors states;  ///< by UpdateRule::state_names()
  /// Where ranks share memory: what every rank has where `gradients` lies in this rank's bucket.
  Tensors peer_gradients;
};

/// One step by the groups' rules on the given runs of a shard, whose gradients are the mean.
void update_shard(const GroupRules& rules, const Shard& shard, const std::vector<SliceRun>& runs);

/// The mean of all ranks' gradients into `gradients`. The peers' must be complete and stay as they
/// are, until this rank is through.
void reduce_shard(const Shard& shard, const std::vector<SliceRun>& runs);

/// Both in one pass over memory, piece by piece, through a buffer that stays in the cache:
/// gradients are read and not written. The same bits as reduce_shard() and update_shard().
void reduce_and_update_shard(const GroupRules& rules, const Shard& shard,
                             const std::vector<SliceRun>& runs);

}  // namespace lockstep
