// Derives output shapes of modules from a record of a forward's operations. Internal to
// lockstep/train.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/nn/module.h>

#include <lockstep/train/task/output_shapes.h>

namespace lockstep::train {

/// The operations of a forward in order, and the tensors that they take and return. The tensors
/// are held weakly: their memory is freed, but none gets the identity of an earlier one.
class ForwardRecord {
 public:
  struct Value {
    const c10::TensorImpl* tensor = nullptr;
    OutputShape shape{};
  };
  struct Step {
    std::string operation{};                    // "aten::conv2d"; empty for a module's call
    std::string arguments{};                    // all but the tensors
    const torch::nn::Module* module = nullptr;  // the module that it belongs to, if known
    std::vector<Value> inputs{};
    std::vector<Value> outputs{};
  };

  /// Adds a step and returns its index.
  std::size_t begin(std::string operation, c10::ArrayRef<const c10::IValue> inputs);
  /// Adds the outputs of step `index`.
  void end(std::size_t index, c10::ArrayRef<c10::IValue> outputs);
  /// Adds the beginning or the end of a call of `module`.
  void add_call(const torch::nn::Module& module, const std::vector<at::Tensor>& inputs,
                const std::vector<at::Tensor>& outputs);
  void set_module(std::size_t index, const torch::nn::Module& module) {
    steps_[index].module = &module;
  }
  void set_module_of_last(const torch::nn::Module& module) { steps_.back().module = &module; }

  const std::vector<Step>& steps() const { return steps_; }

 private:
  Value value_of(const at::Tensor& tensor);
  void add_tensors(const c10::IValue& value, std::vector<Value>& to);

  std::vector<Step> steps_;
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>> held_;
};

/// Adds the shapes that follow from the record (see summarize.h) to the known ones. `modules` are
/// the model and its descendants; `output` is the model's output, or undefined.
void add_data_flow_shapes(ForwardRecord& record, const std::vector<torch::nn::Module*>& modules,
                          const at::Tensor& output, OutputShapes& shapes);

/// For each of these modules with a forward() of its own that is not among the `known` ones, the
/// shape of the last recorded operation that used one of its layers or parameters.
OutputShapes last_operation_shapes(const ForwardRecord& record,
                                   const std::vector<torch::nn::Module*>& modules,
                                   const OutputShapes& known);

}  // namespace lockstep::train
