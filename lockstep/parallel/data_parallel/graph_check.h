// Detects gradients that a backward through replicas would lose.
#pragma once

#include <vector>

#include <lockstep/parallel/data_parallel/backward.h>
#include <lockstep/parallel/data_parallel/gather.h>
#include <lockstep/parallel/data_parallel/replicas.h>

namespace lockstep::detail::data_parallel {

/// Refuses tensors that require gradients but would get none, because a backward asks autograd only
/// for the gradients of a replica's own leaves. Examples are the weights of a criterion, tensors
/// captured by a lambda, and the module's parameters used instead of the replica's.
///
/// `outputs` have a root for each part of `graph`. Throws ConfigError if the graphs of the first
/// two parts both end in a tensor that is not a leaf of the first part. A tensor that only one
/// replica uses, such as a leaf that its forward() makes, is accepted. Each call walks the graph of
/// the first part, and that of the second only if the first ends in an unknown tensor.
void refuse_lost_gradients(const std::vector<GatheredTensor>& outputs, const StepGraph& graph,
                           const Replicas& replicas);

}  // namespace lockstep::detail::data_parallel
