// The ResNet family (He, Zhang, Ren, Sun: "Deep residual learning for image recognition", 2015)
// with torchvision's names, parameter order and initialisation: state dicts can be exchanged with
// torchvision in both directions.
#pragma once

#include <array>
#include <cstdint>

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <lockstep/core/export.h>

namespace lockstep {

enum class ResNetBlock {
  kBasic,       ///< two 3x3 convolutions; ResNet-18 and 34
  kBottleneck,  ///< 1x1, 3x3 (with the stride), 1x1; ResNet-50 and deeper
};

enum class ResNetStem {
  kImageNet,  ///< torchvision's: 7x7 stride 2, max-pool 3x3 stride 2
  kCifar,     ///< for 32x32 images: 3x3 stride 1, no pooling
};

struct LOCKSTEP_API ResNetOptions {
  ResNetBlock block = ResNetBlock::kBasic;
  std::array<std::int64_t, 4> layers = {2, 2, 2, 2};  ///< blocks in each of the four stages
  ResNetStem stem = ResNetStem::kImageNet;
  std::int64_t num_classes = 1000;
};

/// Not thread-safe, like every module. With equal generator states, the initial weights are those
/// of torchvision. clone() copies the module.
class LOCKSTEP_API ResNetImpl : public torch::nn::Cloneable<ResNetImpl> {
 public:
  /// Throws ConfigError unless every stage has at least one block and there is at least one class.
  explicit ResNetImpl(const ResNetOptions& options = {});

  /// Registers the layers with new random weights. Called by the constructor and by clone().
  void reset() override;

  /// `images` is float [N, 3, H, W] in any memory format. Returns logits [N, num_classes].
  torch::Tensor forward(const torch::Tensor& images);

  const ResNetOptions& options() const { return options_; }

 private:
  torch::nn::Sequential make_stage(int stage, std::int64_t& channels) const;

  ResNetOptions options_;
  torch::nn::Conv2d conv1_{nullptr};
  torch::nn::BatchNorm2d bn1_{nullptr};
  std::array<torch::nn::Sequential, 4> stages_{nullptr, nullptr, nullptr, nullptr};
  torch::nn::Linear fc_{nullptr};
};
TORCH_MODULE(ResNet);

/// The standard ResNets with 18, 34 and 50 layers.
LOCKSTEP_API ResNet resnet18(ResNetStem stem = ResNetStem::kImageNet,
                             std::int64_t num_classes = 1000);
LOCKSTEP_API ResNet resnet34(ResNetStem stem = ResNetStem::kImageNet,
                             std::int64_t num_classes = 1000);
LOCKSTEP_API ResNet resnet50(ResNetStem stem = ResNetStem::kImageNet,
                             std::int64_t num_classes = 1000);

}  // namespace lockstep
