// Detects when a program reads a value out of a tensor that is being traced, and whether it
// computes under autocast.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <ATen/record_function.h>
#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <lockstep/export/trace/recording.h>

namespace lockstep::onnx {

/// Autocast for the operations of a device, and the type in which it lets them compute.
struct AutocastUse {
  c10::DeviceType device = c10::DeviceType::CPU;
  c10::ScalarType type = c10::ScalarType::BFloat16;
};

/// While the observer lives, each item() call of this thread on a traced tensor that depends on one
/// of the graph's first `inputs` inputs, and each comparison of such a tensor by equal(), appends
/// the name of the last used parameter to `reads`. The tracer does not record such a read: the
/// number becomes a constant in the graph. The observer also notices whether an operation is called
/// under autocast. A thread may have only one observer.
class ReadObserver {
 public:
  ReadObserver(std::size_t inputs, const NamedParameters& parameters,
               std::vector<std::string>& reads);
  ~ReadObserver();
  ReadObserver(const ReadObserver&) = delete;
  ReadObserver& operator=(const ReadObserver&) = delete;

  /// Called at the beginning and the end of each operation of LibTorch, also inside another one.
  void begin(const std::string& name, c10::ArrayRef<const c10::IValue> arguments);
  void end(const std::string& name);
  /// Called when forward() has returned.
  void finish();
  /// Nothing if no operation was called under autocast so far.
  const std::optional<AutocastUse>& autocast() const { return autocast_; }

 private:
  struct Comparison {
    const c10::TensorImpl* first = nullptr;
    const c10::TensorImpl* second = nullptr;
    std::vector<std::string> places{};  // as note_read() names them
  };

  void note_comparison(const at::Tensor& a, const at::Tensor& b);
  void forget_comparisons_of_attention();
  bool takes_projection_of_attention(c10::ArrayRef<const c10::IValue> arguments) const;
  void note_read(const at::Tensor& tensor, std::vector<std::string>& places) const;
  bool depends_on_inputs(const torch::jit::Value* value) const;
  std::string last_parameter() const;

  const std::size_t inputs_;
  const NamedParameters& parameters_;
  std::vector<std::string>& reads_;
  // torch::nn::MultiheadAttention compares its arguments to save work, with the same result, and
  // then projects them. Comparisons are kept here until the next operation shows whether they
  // were its own.
  std::vector<Comparison> compared_{};
  bool is_comparing_ = false;
  std::optional<AutocastUse> autocast_{};
  at::CallbackHandle callback_;
};

}  // namespace lockstep::onnx
