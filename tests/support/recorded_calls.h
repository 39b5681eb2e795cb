// A CUDA graph's stand-in on the CPU: LibTorch's operations, recorded and replayed.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/types.h>

namespace lockstep::testing_support {

/// Has a graph's semantics as far as a CPU can have them. What is recorded is not executed, as far
/// as anybody can see: tensors and the generator are as before. A replay makes the same calls on
/// the same memory: numbers that were arguments stay what they were, tensors are read anew. What
/// reads a tensor's value on the host throws while it is recorded. Only what goes through
/// LibTorch's dispatcher on the recording thread is recorded, so a fused optimizer's parameters
/// must be whole vectors of 64 bytes (update_rule.cpp copies the rest by itself).
class RecordedCalls {
 public:
  /// Replaces what was recorded before. An exception of `work` leaves nothing recorded.
  void record(const std::function<void()>& work);
  void replay() const;
  std::size_t size() const { return calls_.size(); }

  /// Called for each operation while record() runs.
  void note(const c10::OperatorHandle& operation, c10::DispatchKeySet keys,
            torch::jit::Stack* stack);

 private:
  struct Call {
    c10::OperatorHandle operation;
    torch::jit::Stack arguments;
    torch::jit::Stack results;
  };

  void keep_written(const c10::OperatorHandle& operation, const torch::jit::Stack& arguments);
  void keep(const torch::Tensor& tensor);

  std::vector<Call> calls_;
  std::unordered_map<c10::StorageImpl*, std::pair<c10::Storage, std::string>> written_;
};

}  // namespace lockstep::testing_support
