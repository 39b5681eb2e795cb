// A copy of tensors in host memory, made at memory speed.
#pragma once

#include <cstdint>

#include <torch/types.h>

#include <lockstep/train/checkpoints/state_dict.h>

namespace lockstep::train {

/// Keeps its memory for the next copy, because touching new pages costs more than copying into
/// them. Not thread-safe: a copy must have been read before the next take().
class TensorSnapshot {
 public:
  /// Allocates `bytes` in total and touches them; `pinned` for tensors of a GPU.
  void reserve(std::int64_t bytes, bool pinned);

  /// Copies the tensors with all of LibTorch's threads and returns the copies under the same names,
  /// with equal types and shapes, and equal strides if the tensor is dense. The copies share the
  /// snapshot's memory and are valid until the next take(). Copies from GPUs run concurrently and
  /// are complete on return.
  StateDict take(const StateDict& state);

  /// Number of bytes that take(state) needs.
  static std::int64_t bytes_of(const StateDict& state);

 private:
  torch::Tensor memory_;  // bytes
};

}  // namespace lockstep::train
