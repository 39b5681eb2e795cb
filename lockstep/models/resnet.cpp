#include <lockstep/models/resnet.h>

#include <lockstep/core/error.h>

namespace lockstep {
namespace {

namespace nn = torch::nn;

nn::Conv2d convolution(std::int64_t in, std::int64_t out, std::int64_t kernel,
                       std::int64_t stride) {
  return nn::Conv2d(
      nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

// The projection of the shortcut, or an empty holder if the shortcut is the identity.
nn::Sequential projection(std::int64_t in, std::int64_t out, std::int64_t stride) {
  if (stride == 1 && in == out) return nullptr;
  return nn::Sequential(convolution(in, out, 1, stride), nn::BatchNorm2d(out));
}

class BasicBlockImpl : public nn::Cloneable<BasicBlockImpl> {
 public:
  static constexpr std::int64_t kExpansion = 1;

  BasicBlockImpl(std::int64_t in, std::int64_t width, std::int64_t stride)
      : in_(in), width_(width), stride_(stride) {
    BasicBlockImpl::reset();
  }

  void reset() override {
    // torchvision draws the projection's weights before the block's own.
    downsample_ = projection(in_, width_ * kExpansion, stride_);
    conv1_ = register_module("conv1", convolution(in_, width_, 3, stride_));
    bn1_ = register_module("bn1", nn::BatchNorm2d(width_));
    conv2_ = register_module("conv2", convolution(width_, width_, 3, 1));
    bn2_ = register_module("bn2", nn::BatchNorm2d(width_));
    if (downsample_) register_module("downsample", downsample_);
  }

  torch::Tensor forward(const torch::Tensor& x) {
    auto out = bn1_->forward(conv1_->forward(x)).relu_();
    out = bn2_->forward(conv2_->forward(out));
    return out.add_(downsample_ ? downsample_->forward(x) : x).relu_();
  }

 private:
  std::int64_t in_, width_, stride_;
  nn::Conv2d conv1_{nullptr};
  nn::BatchNorm2d bn1_{nullptr};
  nn::Conv2d conv2_{nullptr};
  nn::BatchNorm2d bn2_{nullptr};
  nn::Sequential downsample_{nullptr};
};
TORCH_MODULE(BasicBlock);

class BottleneckImpl : public nn::Cloneable<BottleneckImpl> {
 public:
  static constexpr std::int64_t kExpansion = 4;

  BottleneckImpl(std::int64_t in, std::int64_t width, std::int64_t stride)
      : in_(in), width_(width), stride_(stride) {
    BottleneckImpl::reset();
  }

  void reset() override {
    // torchvision draws the projection's weights before the block's own.
    downsample_ = projection(in_, width_ * kExpansion, stride_);
    conv1_ = register_module("conv1", convolution(in_, width_, 1, 1));
    bn1_ = register_module("bn1", nn::BatchNorm2d(width_));
    conv2_ = register_module("conv2", convolution(width_, width_, 3, stride_));
    bn2_ = register_module("bn2", nn::BatchNorm2d(width_));
    conv3_ = register_module("conv3", convolution(width_, width_ * kExpansion, 1, 1));
    bn3_ = register_module("bn3", nn::BatchNorm2d(width_ * kExpansion));
    if (downsample_) register_module("downsample", downsample_);
  }

  torch::Tensor forward(const torch::Tensor& x) {
    auto out = bn1_->forward(conv1_->forward(x)).relu_();
    out = bn2_->forward(conv2_->forward(out)).relu_();
    out = bn3_->forward(conv3_->forward(out));
    return out.add_(downsample_ ? downsample_->forward(x) : x).relu_();
  }

 private:
  std::int64_t in_, width_, stride_;
  nn::Conv2d conv1_{nullptr};
  nn::BatchNorm2d bn1_{nullptr};
  nn::Conv2d conv2_{nullptr};
  nn::BatchNorm2d bn2_{nullptr};
  nn::Conv2d conv3_{nullptr};
  nn::BatchNorm2d bn3_{nullptr};
  nn::Sequential downsample_{nullptr};
};
TORCH_MODULE(Bottleneck);

template <class Block>
nn::Sequential make_blocks(std::int64_t count, std::int64_t width, std::int64_t first_stride,
                           std::int64_t& channels) {
  const std::int64_t out = width * Block::ContainedType::kExpansion;
  nn::Sequential blocks;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t stride = i == 0 ? first_stride : 1;
    blocks->push_back(Block(channels, width, stride));
    channels = out;
  }
  return blocks;
}

}  // namespace

nn::Sequential ResNetImpl::make_stage(int stage, std::int64_t& channels) const {
  const std::int64_t width = std::int64_t{64} << stage;
  const std::int64_t stride = stage == 0 ? 1 : 2;
  const std::int64_t count = options_.layers[stage];
  return options_.block == ResNetBlock::kBasic
             ? make_blocks<BasicBlock>(count, width, stride, channels)
             : make_blocks<Bottleneck>(count, width, stride, channels);
}

ResNetImpl::ResNetImpl(const ResNetOptions& options) : options_(options) {
  for (const std::int64_t count : options.layers) {
    if (count < 1) throw ConfigError(str("ResNet: every stage needs a block, got ", count));
  }
  if (options.num_classes < 1) {
    throw ConfigError(str("ResNet: num_classes must be at least 1, got ", options.num_classes));
  }
  ResNetImpl::reset();
}

void ResNetImpl::reset() {
  std::int64_t channels = 64;
  const bool image_net = options_.stem == ResNetStem::kImageNet;
  conv1_ = register_module("conv1", convolution(3, channels, image_net ? 7 : 3, image_net ? 2 : 1));
  bn1_ = register_module("bn1", nn::BatchNorm2d(channels));
  for (int stage = 0; stage < 4; ++stage) {
    stages_[stage] = register_module(str("layer", stage + 1), make_stage(stage, channels));
  }
  fc_ = register_module("fc", nn::Linear(channels, options_.num_classes));
  for (const auto& module : modules(/*include_self=*/false)) {
    if (auto* conv = module->as<nn::Conv2dImpl>()) {
      nn::init::kaiming_normal_(conv->weight, 0.0, torch::kFanOut, torch::kReLU);
    }
  }
}

torch::Tensor ResNetImpl::forward(const torch::Tensor& images) {
  auto x = bn1_->forward(conv1_->forward(images)).relu_();
  if (options_.stem == ResNetStem::kImageNet) x = at::max_pool2d(x, 3, 2, 1);
  for (auto& stage : stages_) x = stage->forward(x);
  return fc_->forward(at::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
}

ResNet resnet18(ResNetStem stem, std::int64_t num_classes) {
  return ResNet(ResNetOptions{.stem = stem, .num_classes = num_classes});
}

ResNet resnet34(ResNetStem stem, std::int64_t num_classes) {
  return ResNet(ResNetOptions{.layers = {3, 4, 6, 3}, .stem = stem, .num_classes = num_classes});
}

ResNet resnet50(ResNetStem stem, std::int64_t num_classes) {
  return ResNet(ResNetOptions{.block = ResNetBlock::kBottleneck,
                              .layers = {3, 4, 6, 3},
                              .stem = stem,
                              .num_classes = num_classes});
}

}  // namespace lockstep
