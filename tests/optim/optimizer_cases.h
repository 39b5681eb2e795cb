// Nets, memory layouts and options for the tests of Optimizer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <lockstep/optim/optimizer.h>

namespace lockstep::testing_support {

/// The tensors with the names p0, p1 and so on.
inline NamedTensors named(const Tensors& tensors) {
  NamedTensors parameters;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    parameters.emplace_back("p" + std::to_string(i), tensors[i]);
  }
  return parameters;
}

/// A convolution and a linear layer, with the same weights in every call.
inline torch::nn::Sequential make_net() {
  torch::manual_seed(1);
  return torch::nn::Sequential(torch::nn::Conv2d(2, 3, 3), torch::nn::Flatten(),
                               torch::nn::Linear(3 * 4 * 4, 5));
}

/// Parameters in one block of memory and gradients in another. Each begins at a multiple of 64
/// bytes, with zeros as padding, as DistributedDataParallel lays them out.
struct FlatMemory {
  explicit FlatMemory(std::vector<std::vector<std::int64_t>> the_shapes)
      : shapes(std::move(the_shapes)), parameters(empty()), gradients(empty()) {}

  torch::Tensor empty() const {
    std::int64_t size = 0;
    for (const auto& shape : shapes) size += padded(shape);
    return torch::zeros({size});
  }
  static std::int64_t padded(const std::vector<std::int64_t>& shape) {
    return (c10::multiply_integers(shape) + 15) / 16 * 16;
  }
  Tensors views(const torch::Tensor& flat) const {
    Tensors tensors;
    std::int64_t offset = 0;
    for (const auto& shape : shapes) {
      tensors.push_back(flat.narrow(0, offset, c10::multiply_integers(shape)).view(shape).detach());
      offset += padded(shape);
    }
    return tensors;
  }
  /// Parameters whose gradients are views of `gradients`.
  Tensors bound() const {
    Tensors tensors = views(parameters);
    const Tensors grads = views(gradients);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      tensors[i].requires_grad_();
      tensors[i].mutable_grad() = grads[i];
    }
    return tensors;
  }

  std::vector<std::vector<std::int64_t>> shapes;
  torch::Tensor parameters;
  torch::Tensor gradients;
};

inline const std::vector<std::vector<std::int64_t>> kShapes = {
    {10, 5, 5}, {10}, {20, 3}, {64}, {1}};

inline const OptimizerOptions kOptions[] = {
    SgdOptions{.lr = 0.1},
    SgdOptions{.lr = 0.05, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true},
    AdamOptions{.lr = 0.01, .weight_decay = 0.1},
    AdamWOptions{.lr = 0.01, .amsgrad = true},
};

}  // namespace lockstep::testing_support
