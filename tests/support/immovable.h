// A module that cannot be moved to a device.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <lockstep/core/error.h>

namespace lockstep::testing_support {

/// Returns its input. Its weight is on the meta device, so reading the weight or moving the module
/// to another device throws.
struct ImmovableImpl : torch::nn::Module {
  ImmovableImpl() { register_parameter("weight", torch::empty({2}, torch::kMeta)); }
  using torch::nn::Module::to;
  void to(torch::Device, bool) override { throw DataError("there is no room on the device"); }
  torch::Tensor forward(const torch::Tensor& x) { return x; }
};
TORCH_MODULE(Immovable);

}  // namespace lockstep::testing_support
