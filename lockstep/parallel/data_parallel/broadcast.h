// Copies of a module's tensors, for replicas that must not or cannot share them.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include <torch/types.h>

namespace lockstep::detail::data_parallel {

/// Sends tensors from the first device to replicas: one copy for each dtype and device, or tensor
/// by tensor if all are on the same device. The replicas keep their tensor objects; their storage
/// becomes a part of a block owned by the broadcast. Sending therefore raises no version counter
/// and does not invalidate a graph that has saved a tensor.
class Broadcast {
 public:
  struct Target {
    torch::Device device;
    std::vector<torch::Tensor> tensors;  ///< as many as there are originals
  };

  Broadcast() = default;
  explicit Broadcast(std::vector<Target> targets) : targets_(std::move(targets)) {}

  /// Copies `originals`, which are on one device, to the tensors of all targets. Shapes, strides
  /// and dtypes are copied too, even if they have changed since the last call. Call it with
  /// gradient recording off.
  void send(const std::vector<torch::Tensor>& originals);

 private:
  // The tensors of one dtype.
  struct Block {
    std::vector<std::size_t> members;   // indices of the originals
    torch::Tensor staging;              // on the originals' device; undefined if not needed
    std::vector<torch::Tensor> staged;  // views of `staging`
    std::vector<torch::Tensor> flats;   // one for each target
    std::vector<std::vector<torch::Tensor>> views;
  };
  bool fits(const std::vector<torch::Tensor>& originals) const;
  void make_blocks(const std::vector<torch::Tensor>& originals);

  std::vector<Target> targets_;
  std::vector<Block> blocks_;
};

}  // namespace lockstep::detail::data_parallel
