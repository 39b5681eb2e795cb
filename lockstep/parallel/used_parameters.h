// Which parameters take part in a backward, here and on the other ranks.
#pragma once

#include <vector>

#include <torch/types.h>

#include <lockstep/comm/process_group.h>

namespace lockstep {

/// Whether the backward that runs on this thread will reach each of `parameters`. To be asked from within
/// it. Autograd has counted the nodes of its graph before it starts, so that this costs one look a
/// parameter, nothing has to be searched, and it holds whatever of the module's outputs the loss uses. A
/// backward inside of this one (checkpointing) has a graph of its own, which is not seen.
std::vector<bool> parameters_in_graph(const std::vector<torch::Tensor>& parameters);

/// The union of such sets over the ranks, for up to `count` parameters.
class UsedParameters {
 public:
  /// Collective.
  UsedParameters(std::size_t count, ProcessGroup group);

  /// Collective. Starts the union with this rank's set.
  void start(const std::vector<bool>& used);
  /// Waits for what start() began.
  void finish();
  /// Whether any rank uses parameter `index`.
  bool anywhere(std::size_t index) const { return used_[index]; }

 private:
  ProcessGroup group_;
  torch::Tensor flags_;  // uint8 [count], in symmetric memory
  WorkPtr work_;
  std::vector<bool> used_;
};

}  // namespace lockstep
