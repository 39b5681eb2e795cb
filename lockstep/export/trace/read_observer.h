// Detects when a program reads a value out of a tensor that is being traced.
#pragma once

#include <string>
#include <vector>

#include <ATen/record_function.h>

#include <lockstep/export/trace/recording.h>

namespace lockstep::onnx {

/// While the observer lives, each item() call of this thread on a traced tensor that depends on one
/// of the graph's first `inputs` inputs appends the name of the last used parameter to `reads`. The
/// tracer does not record such a read: the number becomes a constant in the graph. A thread may
/// have only one observer.
class ReadObserver {
 public:
  ReadObserver(std::size_t inputs, const NamedParameters& parameters,
               std::vector<std::string>& reads);
  ~ReadObserver();
  ReadObserver(const ReadObserver&) = delete;
  ReadObserver& operator=(const ReadObserver&) = delete;

  /// Called with the tensor that is read.
  void on_read(const at::Tensor& tensor);
  /// Called with the tensors that torch::equal() compares. Nothing is read if both are the same, or
  /// if the module contains attention: torch::nn::MultiheadAttention compares its arguments to save
  /// work, with the same result.
  void on_comparison(const at::Tensor& a, const at::Tensor& b);

 private:
  bool depends_on_inputs(const torch::jit::Value* value) const;
  std::string last_parameter() const;

  const std::size_t inputs_;
  const NamedParameters& parameters_;
  std::vector<std::string>& reads_;
  at::CallbackHandle callback_;
};

}  // namespace lockstep::onnx
