// The memory of a bucket's gradients and, if requested, of its parameters.
#pragma once

#include <string>
#include <vector>

#include <torch/types.h>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/core/export.h>
#include <lockstep/parallel/ddp/grad_bucket.h>

namespace lockstep {

/// Where DistributedDataParallel puts the parameters. They remain the same tensor objects; only
/// their storage changes, so anything that holds the old storage itself (a view, an exported
/// pointer) is left behind. From then on write their values in place (copy_()): operations that
/// replace the storage (set_data(), torch::load(), Module::to()) move them out again.
enum class ParameterMemory {
  kAsIs,  ///< not moved
  /// In flat buffers with the layout of the gradients' buckets, for optimizers that update whole
  /// buffers.
  kFlat,
  /// Like kFlat, but in one copy that all ranks share; only for ranks on the CPU of one host. A
  /// write to a parameter changes it on all ranks, which ZeroRedundancyOptimizer relies on.
  kShared,
};

}  // namespace lockstep

namespace lockstep::detail {

struct LOCKSTEP_API NamedParameter {
  std::string name{};
  torch::Tensor tensor{};
};

/// Collective. Makes a zeroed bucket for the gradients of `members`, in that order. Throws
/// ConfigError for a parameter that is not on the device of the group's memory.
LOCKSTEP_API GradBucket make_bucket(const std::vector<NamedParameter>& members, ProcessGroup& group,
                                    ParameterMemory memory);

/// Collective. Moves the bucket's parameters, with their values, to new memory of the kind
/// `memory`, which must not be kAsIs, in the layout of its gradients.
LOCKSTEP_API void move_parameters(GradBucket& bucket, ProcessGroup& group, ParameterMemory memory);

/// Moves the bucket's parameters, with their values, out of shared memory into memory of this
/// rank's own. Without the bucket no rule says which rank writes them, and the ranks of another
/// group would not all see the same kind of memory. Parameters for which this rank cannot allocate
/// memory stay in shared memory.
LOCKSTEP_API void leave_shared_memory(GradBucket& bucket) noexcept;

/// Throws ConfigError if `memory` requires moving `parameters` and they cannot be moved.
LOCKSTEP_API void check_movable(const std::vector<NamedParameter>& parameters,
                                ParameterMemory memory);

/// Collective. Throws ConfigError unless `group` supports this kind of memory.
LOCKSTEP_API void check_parameter_memory(ProcessGroup& group, ParameterMemory memory);

}  // namespace lockstep::detail
