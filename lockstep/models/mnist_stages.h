// The MNIST net cut into consecutive stages, for pipelines.
//
//   MnistNet net;
//   std::vector<MnistStage> stages = mnist_stages(net, 2);
//   torch::Tensor log_probabilities = stages[1]->forward(stages[0]->forward(images));
#pragma once

#include <memory>
#include <vector>

#include <torch/nn/module.h>

#include <lockstep/core/export.h>
#include <lockstep/models/mnist_net.h>

namespace lockstep {

/// The layers of an MnistNet from one cut to the next. The stage shares them with the net, under
/// their names in the net, and keeps the net alive. Not thread-safe, like every module, but
/// different stages may be used concurrently.
class LOCKSTEP_API MnistStageImpl : public torch::nn::Module {
 public:
  /// The layers `first` to `end` - 1 of MnistNetImpl::forward_layers(). mnist_stages() makes the
  /// stages.
  MnistStageImpl(const MnistNet& net, int first, int end);

  /// The first stage takes images like MnistNet, the last one returns log-probabilities. Dropout
  /// follows the mode of the stage, not that of the net.
  torch::Tensor forward(const torch::Tensor& x);

  /// For StageModule: whether the stage has a fused convolution, whose backward cannot be split.
  /// True even where the kernel does not run (on GPUs, under autocast, on unsupported processors);
  /// make the net without MnistNetOptions::fused_kernels there.
  bool has_whole_backward() const { return net_->has_fused_layer(first_, end_); }

 private:
  std::shared_ptr<MnistNetImpl> net_;  // not registered: its other layers are not in this stage
  int first_;
  int end_;
};
TORCH_MODULE(MnistStage);

/// Cuts `net` into `count` stages. Every stage but the last has one layer: the two convolutions
/// take nearly all of the time, and the first cut separates them. The results are bitwise those of
/// the net. Throws ConfigError unless `count` is from 1 to MnistNetImpl::kLayers.
LOCKSTEP_API std::vector<MnistStage> mnist_stages(const MnistNet& net, int count);

}  // namespace lockstep
