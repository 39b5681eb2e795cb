// A copy of tensors in host memory, made as fast as memory allows.
#pragma once

#include <cstdint>

#include <torch/types.h>

#include <lockstep/train/checkpoints/state_dict.h>

namespace lockstep {

/// Keeps its memory for the next copy, because pages that are touched for the first time cost more
/// than to copy into them. Not thread-safe: whoever reads a copy has done so before the next
/// take().
class TensorSnapshot {
 public:
  /// Makes room for `bytes` in all and touches it; `pinned` for tensors of a GPU.
  void reserve(std::int64_t bytes, bool pinned);

  /// Copies the tensors with all of LibTorch's threads and returns the copies under the same names,
  /// types, shapes and, where the elements of a tensor lie without holes, strides. They share the
  /// snapshot's memory and hold until the next take(). Copies from GPUs run at the same time; they
  /// are complete when this returns.
  StateDict take(const StateDict& state);

  /// The bytes that a take() of `state` needs.
  static std::int64_t bytes_of(const StateDict& state);

 private:
  torch::Tensor memory_;  // bytes
};

}  // namespace lockstep
