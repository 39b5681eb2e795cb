// Determines which parameters take part in a backward, on this rank and on any rank.
#pragma once

#include <vector>

#include <torch/types.h>

#include <lockstep/comm/group/process_group.h>

namespace lockstep::parallel {

/// Whether the backward running on this thread will reach each of `parameters`. Call it from within
/// that backward. Autograd has already counted the nodes of the graph, so this costs one lookup per
/// parameter and no search, and it is right even if the loss uses only some of the module's
/// outputs. A nested backward (checkpointing) has a separate graph, which is not seen.
std::vector<bool> parameters_in_graph(const std::vector<torch::Tensor>& parameters);

/// The union of the ranks' used sets, for up to `count` parameters.
class UsedParameters {
 public:
  /// Collective.
  UsedParameters(std::size_t count, ProcessGroup group);

  /// Collective. Starts the union with this rank's set. Does not wait for a device.
  void start(const std::vector<bool>& used);
  /// Waits for the operation begun by start(), like Work::wait(): over NCCL the current stream
  /// waits, not the caller.
  void finish();
  /// Whether any rank uses parameter `index`. On a device the first call after a finish() waits for
  /// the device; a rank that uses all parameters itself need not call it.
  bool anywhere(std::size_t index);

 private:
  void read();

  ProcessGroup group_;
  torch::Tensor flags_;  // uint8 [count], in symmetric memory
  WorkPtr work_;
  bool is_read_ = true;  // used_ is up to date with flags_
  std::vector<bool> used_;
};

}  // namespace lockstep::parallel
