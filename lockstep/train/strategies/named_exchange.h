// Moves named tensors between rank 0 and all ranks: the state of a model whose parts are on
// different ranks.
#pragma once

#include <vector>

#include <torch/types.h>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/optim/parameter_groups.h>

namespace lockstep::train {

/// Collective. On rank 0, returns the tensors of all ranks, in rank order; empty on other ranks.
/// Rank 0's own tensors are shared; the others are in new memory on the CPU. Tensors travel through
/// `device`, from which the group can send.
NamedTensors gather_named(const NamedTensors& own, ProcessGroup& group, torch::Device device);

/// Collective. Returns the tensors that rank 0 has for this rank. Only rank 0 passes `of_ranks`,
/// with a list for each rank. Received tensors are on `device`.
NamedTensors scatter_named(const std::vector<NamedTensors>& of_ranks, ProcessGroup& group,
                           torch::Device device);

}  // namespace lockstep::train
