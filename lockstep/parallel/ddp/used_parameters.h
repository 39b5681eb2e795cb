// Which parameters take part in a backward, here and on the other ranks.
#pragma once

#include <vector>

#include <torch/types.h>

#include <lockstep/comm/group/process_group.h>

namespace lockstep {

/// Whether the backward that runs on this thread will reach each of `parameters`. To be asked from
/// within it. Autograd has counted the nodes of its graph before it starts, so that this costs one
/// look a parameter, nothing has to be searched, and it holds whatever of the module's outputs the
/// loss uses. A backward inside of this one (checkpointing) has a graph of its own, which is not
/// seen.
std::vector<bool> parameters_in_graph(const std::vector<torch::Tensor>& parameters);

/// The union of such sets over the ranks, for up to `count` parameters.
class UsedParameters {
 public:
  /// Collective.
  UsedParameters(std::size_t count, ProcessGroup group);

  /// Collective. Starts the union with this rank's set. Does not wait for a device.
  void start(const std::vector<bool>& used);
  /// Waits for what start() began, as Work::wait() does: over NCCL the current stream waits, not
  /// the caller.
  void finish();
  /// Whether any rank uses parameter `index`. On a device the first question after a finish() waits
  /// for the device; a rank that uses all parameters itself need not ask.
  bool anywhere(std::size_t index);

 private:
  void read();

  ProcessGroup group_;
  torch::Tensor flags_;  // uint8 [count], in symmetric memory
  WorkPtr work_;
  bool is_read_ = true;  // used_ has what flags_ has
  std::vector<bool> used_;
};

}  // namespace lockstep
