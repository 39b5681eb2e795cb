// What a recorded step reads and writes, as it was when it was recorded. Internal to
// lockstep/train.
#pragma once

#include <cstdint>
#include <vector>

#include <torch/nn/module.h>
#include <torch/types.h>

namespace lockstep::train {

/// The replays of a recorded step use the memory that parameters, gradients and buffers had during
/// the recording. If one of them gets other memory later, the module no longer sees the replays,
/// and these may write to memory that was freed. Refers to `module`, which must outlive all calls,
/// and holds its tensors. Not thread-safe.
class RecordedMemory {
 public:
  /// Construct it once a step of `module` has been recorded.
  explicit RecordedMemory(torch::nn::Module& module);

  /// Throws ConfigError, which names the tensor, if a parameter was registered, replaced, moved,
  /// frozen or unfrozen, its gradient replaced, or a buffer moved. Costs a few comparisons for each
  /// tensor and does not wait for the device.
  void require_unchanged() const;

 private:
  // Where a tensor's elements lie. Null for an undefined tensor.
  struct Place {
    const void* address = nullptr;
    torch::ScalarType type = torch::ScalarType::Undefined;
    std::int64_t elements = 0;
    bool operator==(const Place&) const = default;
  };
  struct Known {
    torch::Tensor tensor;
    Place own;
    Place gradient;
    bool requires_grad;
  };
  static Place place_of(const torch::Tensor& tensor);
  static Known as_now(const torch::Tensor& tensor);
  static const char* change_of(const Known& known, const torch::Tensor& now);

  torch::nn::Module* module_;
  std::vector<Known> parameters_;  // in the order of for_each_parameter()
  std::vector<Known> buffers_;     // in the order of Module::named_buffers()
};

}  // namespace lockstep::train
