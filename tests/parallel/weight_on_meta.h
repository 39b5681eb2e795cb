// A module that can be moved to the device "meta", where tensors have no values. This stands in for
// a second device on machines without a GPU.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

namespace lockstep::testing_support {

/// Creates its weight anew on each device, because LibTorch's to() cannot move a parameter to
/// "meta".
struct WeightOnMetaImpl : torch::nn::Module {
  WeightOnMetaImpl() { register_parameter("weight", torch::ones({2})); }
  torch::Tensor forward(const torch::Tensor& x) { return x * parameters_["weight"]; }
  using torch::nn::Module::to;
  void to(torch::Device device, bool /*non_blocking*/) override {
    parameters_["weight"] = torch::ones({2}, torch::TensorOptions(device).requires_grad(true));
  }
};
TORCH_MODULE(WeightOnMeta);

}  // namespace lockstep::testing_support
