// Where the gradients and, if wanted, the parameters of a bucket live.
#pragma once

#include <string>
#include <vector>

#include <torch/types.h>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/parallel/ddp/grad_bucket.h>

namespace lockstep {

struct NamedParameter {
  std::string name{};
  torch::Tensor tensor{};
};

/// Where DistributedDataParallel puts the parameters. They stay the same tensor objects; only their
/// storage changes, so that whoever holds the storage itself (a view, an exported pointer) is left
/// behind. From then on write their values in place (copy_()): what gives them another storage
/// (set_data(), torch::load(), Module::to()) moves them out again.
enum class ParameterMemory {
  kAsIs,  ///< where they are
  /// In flat buffers with the layout of the gradients' buckets, for optimizers that step over them.
  kFlat,
  /// As kFlat, in one copy that all ranks share; only on one host's CPU. Whoever writes a parameter
  /// writes everybody's: ZeroRedundancyOptimizer does.
  kShared,
};

/// Collective. A zeroed bucket for the gradients of `members`, in that order. ConfigError for a
/// parameter that is on another device than the group's memory.
GradBucket make_bucket(const std::vector<NamedParameter>& members, ProcessGroup& group,
                       ParameterMemory memory);

/// Collective. Moves the bucket's parameters, with their values, to new memory of the kind
/// `memory`, which is not kAsIs, in the layout of its gradients.
void move_parameters(GradBucket& bucket, ProcessGroup& group, ParameterMemory memory);

/// Moves parameters out of shared memory into this rank's own, with their values: without their
/// bucket nobody agrees any more on who writes them, and another group of ranks would not see the
/// same kind of memory on all of them. Where this rank cannot allocate, they stay.
void leave_shared_memory(GradBucket& bucket) noexcept;

/// ConfigError unless `parameters` can be moved, if `memory` asks for it.
void check_movable(const std::vector<NamedParameter>& parameters, ParameterMemory memory);

/// Collective. ConfigError unless `group` can have such parameters.
void check_parameter_memory(ProcessGroup& group, ParameterMemory memory);

}  // namespace lockstep
