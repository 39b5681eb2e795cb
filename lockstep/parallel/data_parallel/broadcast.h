// Copies of a module's tensors, for replicas that must not or cannot share them.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include <torch/types.h>

namespace lockstep::data_parallel {

/// Sends tensors from the first device to replicas: one copy for each dtype and device, or tensor
/// by tensor where they share the memory. The replicas keep their tensor objects; their storage
/// becomes a part of a block that the broadcast owns, so that sending raises no tensor's version
/// and a graph that has saved one is not spoilt.
class Broadcast {
 public:
  struct Target {
    torch::Device device;
    std::vector<torch::Tensor> tensors;  ///< as many as there are originals
  };

  Broadcast() = default;
  explicit Broadcast(std::vector<Target> targets) : targets_(std::move(targets)) {}

  /// Makes the tensors of all targets equal to `originals`, which are on one device. Shapes,
  /// strides and dtypes are taken over, also where they have changed since the last call. Call it
  /// without a graph.
  void send(const std::vector<torch::Tensor>& originals);

 private:
  // The tensors of one dtype.
  struct Block {
    std::vector<std::size_t> members;   // places among the originals
    torch::Tensor staging;              // on the originals' device; undefined where none is needed
    std::vector<torch::Tensor> staged;  // views of it
    std::vector<torch::Tensor> flats;   // one for each target
    std::vector<std::vector<torch::Tensor>> views;
  };
  bool fits(const std::vector<torch::Tensor>& originals) const;
  void make_blocks(const std::vector<torch::Tensor>& originals);

  std::vector<Target> targets_;
  std::vector<Block> blocks_;
};

}  // namespace lockstep::data_parallel
