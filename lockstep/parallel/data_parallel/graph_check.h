// Gradients that a backward through replicas would lose.
#pragma once

#include <vector>

#include <lockstep/parallel/data_parallel/backward.h>
#include <lockstep/parallel/data_parallel/gather.h>
#include <lockstep/parallel/data_parallel/replicas.h>

namespace lockstep::data_parallel {

/// Refuses tensors that require gradients and that a backward would not reach, because it asks
/// autograd for the gradients of a replica's own leaves only: a criterion's own weights, what a
/// lambda has captured, or the module's parameters in place of the replica's.
///
/// `outputs` have a root for each part of `graph`. ConfigError where the graphs of its first two
/// parts both end in a tensor that is not a leaf of the first one. One that a single replica uses,
/// such as a leaf that its forward() makes, is accepted. Walks the graph of the first part in each
/// call, and that of the second only where the first one ends in a tensor that it does not know.
void refuse_lost_gradients(const std::vector<GatheredTensor>& outputs, const StepGraph& graph,
                           const Replicas& replicas);

}  // namespace lockstep::data_parallel
