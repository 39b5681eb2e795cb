// Gradients that a backward through replicas would lose.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/parallel/data_parallel/gather.h>

namespace lockstep::data_parallel {

/// Finds tensors that require gradients and are neither parameters of the module nor arguments: a
/// criterion's own weights, or what a lambda has captured. A backward asks autograd for the
/// gradients of a replica's own leaves only. All that replicas record is their own, so where the
/// graphs of two of them meet, they lead to such a tensor. One that a single replica uses, such as
/// a leaf that its forward() makes, is not looked for.
class GraphCheck {
 public:
  /// `outputs` have a part for each of `replicas`. ConfigError where the graphs of the first two
  /// meet. A graph is walked once; others that end in the same operations and are as deep are taken
  /// for it.
  void look_at(const std::vector<GatheredTensor>& outputs,
               const std::vector<std::size_t>& replicas);
  /// Called when the replicas were made anew.
  void forget() { seen_.clear(); }

 private:
  // The operation at each root, and the length of the longest path below it.
  using Shape = std::vector<std::pair<std::string, std::uint64_t>>;
  std::set<Shape> seen_;
};

}  // namespace lockstep::data_parallel
