// Copies rank 0's buffers (the running statistics of batch normalisation) to all ranks.
#pragma once

#include <string>
#include <vector>

#include <torch/nn/module.h>

#include <lockstep/comm/group/process_group.h>

namespace lockstep::detail {

/// Moves the buffers of a module into symmetric memory, one block per dtype, so that one broadcast
/// without copies sends them all. The module keeps its tensor objects; only their storage changes.
/// A buffer whose storage is replaced later is moved again at the next broadcast. If a buffer has
/// changed its type, shape or device, broadcast() throws ConfigError and aborts the group.
class ModuleBuffers {
 public:
  /// Collective.
  ModuleBuffers(const torch::nn::Module& module, ProcessGroup group);

  /// Collective. Copies the buffers of rank `source` to every rank, as PyTorch's DDP does before
  /// each forward.
  void broadcast(int source = 0);

  bool empty() const { return blocks_.empty(); }

 private:
  struct Block {
    torch::Tensor flat;
    std::vector<std::string> names;
    std::vector<torch::Tensor> buffers;
    std::vector<torch::Tensor> views;  ///< parts of `flat`, one for each buffer
  };
  void move_into_block(Block& block);

  ProcessGroup group_;
  std::vector<Block> blocks_;
};

}  // namespace lockstep::detail
