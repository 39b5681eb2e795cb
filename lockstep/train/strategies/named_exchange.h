// Named tensors from all ranks to the first, and back: the state of a model whose parts lie on
// ranks.
#pragma once

#include <vector>

#include <torch/types.h>

#include <lockstep/comm/process_group.h>
#include <lockstep/optim/parameter_groups.h>

namespace lockstep {

/// Collective. On rank 0 the tensors of all ranks, one rank after the other, in memory of their own
/// on the CPU but for rank 0's own, which are shared; elsewhere nothing. Tensors travel through
/// `device`, which is one that the group can send from.
NamedTensors gather_named(const NamedTensors& own, ProcessGroup& group, torch::Device device);

/// Collective. Returns what rank 0 has for this rank: `of_ranks`, which only rank 0 gives, has a
/// list for each rank. Received tensors are on `device`.
NamedTensors scatter_named(const std::vector<NamedTensors>& of_ranks, ProcessGroup& group,
                           torch::Device device);

}  // namespace lockstep
