// ModelParallel: a model whose stages are on different devices and compute one after the other.
//
//   lockstep::ResNet net = lockstep::resnet50();
//   const auto stages = lockstep::resnet_stages(net, {"layer2"});
//   const std::vector<torch::Device> devices = {torch::Device("cuda:0"), torch::Device("cuda:1")};
//   lockstep::ModelParallel model({stages[0], stages[1]}, devices);
//   auto loss = criterion(model.forward(x), y.to(devices[1]));
//   loss.backward();
//
// For models that are too large for one device, as in PyTorch's tutorial "Single-Machine Model
// Parallel Best Practices". Only one device computes at a time; Pipeline keeps all of them busy.
#pragma once

#include <vector>

#include <torch/nn/module.h>
#include <torch/types.h>

#include <lockstep/core/export.h>
#include <lockstep/parallel/pipeline/stage_module.h>

namespace lockstep {

/// A module like any other: autograd, optimizers and hooks see one graph. It shares the stages'
/// modules and registers them as "stage0", "stage1" and so on. If the stages share their layers
/// with an unsplit module, save that module: its names, and so its checkpoints, are unchanged. Do
/// not move a ModelParallel: to(device) would move all of its stages to one device. Where stages
/// share a layer, parameters() lists its tensors once for each of them; give LibTorch's optimizers
/// `distinct(model.parameters())` (lockstep/optim/distinct.h). Activations are copied on the
/// current streams, because there is no other work that a copy could overlap with. Not thread-safe.
class LOCKSTEP_API ModelParallel : public torch::nn::Module {
 public:
  /// Moves stage s to `devices[s]`; a device may occur several times. Throws ConfigError if there
  /// is no stage, if the numbers of stages and devices differ, if a device does not exist, or if
  /// stages on different devices share a parameter or a buffer.
  ModelParallel(std::vector<pipeline::StageModule> stages, std::vector<torch::Device> devices);

  /// Moves `x` to the first device and returns the output of the last stage, on the last device.
  /// Throws ConfigError if that output is not one tensor.
  torch::Tensor forward(const torch::Tensor& x);
  /// forward() for several inputs and outputs.
  Tensors forward_all(Tensors x);

  const std::vector<torch::Device>& devices() const { return devices_; }

 private:
  std::vector<pipeline::StageModule> stages_;
  std::vector<torch::Device> devices_;
};

}  // namespace lockstep
