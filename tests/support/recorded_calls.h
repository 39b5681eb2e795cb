// Simulates a CUDA graph on the CPU: records LibTorch's operations and replays them.
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

/// Follows a graph's semantics as far as possible on a CPU. Recorded operations appear not to be
/// executed: tensors and the generator are restored. A replay makes the same calls on the same
/// memory, so tensors are read again, but numbers keep their recorded values. An operation that
/// reads a tensor's value on the host throws during a recording. Only calls through LibTorch's
/// dispatcher on the recording thread are recorded, so the sizes of a fused optimizer's parameters
/// must be multiples of 64 bytes (update_rule.cpp copies a remainder without the dispatcher).
class RecordedCalls {
 public:
  /// Records `work` in place of the previous recording. If `work` throws, the recording is empty.
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
