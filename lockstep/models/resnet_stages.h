// A ResNet cut into consecutive stages, for pipelines and for several devices.
//
//   ResNet net = resnet50();
//   auto stages = resnet_stages(net, {"layer2"});  // as in PyTorch's tutorial
//   torch::Tensor logits = stages[1]->forward(stages[0]->forward(images));
#pragma once

#include <string>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <lockstep/core/export.h>
#include <lockstep/models/resnet.h>

namespace lockstep {

/// The layers of a ResNet from one cut to the next. The stage shares them with the net, under their
/// names in the net ("layer3.1.conv1.weight"), so a checkpoint of the net fits any cut. Not
/// thread-safe, like every module, but different stages may be used concurrently.
class LOCKSTEP_API ResNetStageImpl : public torch::nn::Module {
 public:
  /// The blocks `first` to `end` - 1 of `net`, counted over all its layers. The first stage also
  /// has the stem, the last one the classifier. resnet_stages() makes the stages.
  ResNetStageImpl(const ResNet& net, std::int64_t first, std::int64_t end, bool is_first,
                  bool is_last);

  /// The first stage takes images like ResNet, the last one returns logits; between stages the data
  /// is float [N, C, H, W].
  torch::Tensor forward(torch::Tensor x);

 private:
  bool pools_ = false;
  torch::nn::Conv2d conv1_{nullptr};
  torch::nn::BatchNorm2d bn1_{nullptr};
  std::vector<torch::nn::Sequential> layers_;  // whole layers, or some of their blocks
  torch::nn::Linear fc_{nullptr};
};
TORCH_MODULE(ResNetStage);

/// Cuts `net` into one more stage than there are `cuts`. A cut is the name of the last part of a
/// stage: a layer ("layer2") or a block ("layer3.1"). The results are bitwise those of the net.
/// Throws ConfigError for a name that the net does not have, and for cuts that are not in forward
/// order.
LOCKSTEP_API std::vector<ResNetStage> resnet_stages(const ResNet& net,
                                                    const std::vector<std::string>& cuts);

/// The names of all blocks of `net`, in forward order. Each but the last can be a cut.
LOCKSTEP_API std::vector<std::string> resnet_blocks(const ResNet& net);

/// The cuts that divide `net` into `stages` stages, for resnet_stages(). For two stages the cut is
/// after layer2, as in PyTorch's tutorial. More stages have nearly equal numbers of blocks, because
/// blocks cost nearly the same. Throws ConfigError unless `stages` is from 1 to the number of
/// blocks.
LOCKSTEP_API std::vector<std::string> resnet_cuts(const ResNet& net, int stages);

}  // namespace lockstep
