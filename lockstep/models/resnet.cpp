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

// The projection of the shortcut, or an empty holder where the shortcut is the identity.
nn::Sequential projection(std::int64_t in, std::int64_t out, std::int64_t stride) {
  if (stride == 1 && in == out) return nullptr;
  return nn::Sequential(convolution(in, out, 1, stride), nn::BatchNorm2d(out));
}

class BasicBlockImpl : public nn::Module {
 public:
  static constexpr std::int64_t kExpansion = 1;

  // The projection comes made: torchvision draws its weights before the block's own.
  BasicBlockImpl(std::int64_t in, std::int64_t width, std::int64_t stride,
                 nn::Sequential downsample)
      : conv1_(register_module("conv1", convolution(in, width, 3, stride))),
        bn1_(register_module("bn1", nn::BatchNorm2d(width))),
        conv2_(register_module("conv2", convolution(width, width, 3, 1))),
        bn2_(register_module("bn2", nn::BatchNorm2d(width))),
        downsample_(std::move(downsample)) {
    if (downsample_) register_module("downsample", downsample_);
  }

  torch::Tensor forward(const torch::Tensor& x) {
    auto out = bn1_->forward(conv1_->forward(x)).relu_();
    out = bn2_->forward(conv2_->forward(out));
    return out.add_(downsample_ ? downsample_->forward(x) : x).relu_();
  }

 private:
  nn::Conv2d conv1_;
  nn::BatchNorm2d bn1_;
  nn::Conv2d conv2_;
  nn::BatchNorm2d bn2_;
  nn::Sequential downsample_;
};
TORCH_MODULE(BasicBlock);

class BottleneckImpl : public nn::Module {
 public:
  static constexpr std::int64_t kExpansion = 4;

  BottleneckImpl(std::int64_t in, std::int64_t width, std::int64_t stride,
                 nn::Sequential downsample)
      : conv1_(register_module("conv1", convolution(in, width, 1, 1))),
        bn1_(register_module("bn1", nn::BatchNorm2d(width))),
        conv2_(register_module("conv2", convolution(width, width, 3, stride))),
        bn2_(register_module("bn2", nn::BatchNorm2d(width))),
        conv3_(register_module("conv3", convolution(width, width * kExpansion, 1, 1))),
        bn3_(register_module("bn3", nn::BatchNorm2d(width * kExpansion))),
        downsample_(std::move(downsample)) {
    if (downsample_) register_module("downsample", downsample_);
  }

  torch::Tensor forward(const torch::Tensor& x) {
    auto out = bn1_->forward(conv1_->forward(x)).relu_();
    out = bn2_->forward(conv2_->forward(out)).relu_();
    out = bn3_->forward(conv3_->forward(out));
    return out.add_(downsample_ ? downsample_->forward(x) : x).relu_();
  }

 private:
  nn::Conv2d conv1_;
  nn::BatchNorm2d bn1_;
  nn::Conv2d conv2_;
  nn::BatchNorm2d bn2_;
  nn::Conv2d conv3_;
  nn::BatchNorm2d bn3_;
  nn::Sequential downsample_;
};
TORCH_MODULE(Bottleneck);

template <class Block>
nn::Sequential make_blocks(std::int64_t count, std::int64_t width, std::int64_t first_stride,
                           std::int64_t& channels) {
  const std::int64_t out = width * Block::ContainedType::kExpansion;
  nn::Sequential blocks;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t stride = i == 0 ? first_stride : 1;
    auto downsample = projection(channels, out, stride);
    blocks->push_back(Block(channels, width, stride, downsample));
    channels = out;
  }
  return blocks;
}

}  // namespace

nn::Sequential ResNetImpl::make_stage(const ResNetOptions& options, int stage,
                                      std::int64_t& channels) {
  const std::int64_t width = std::int64_t{64} << stage;
  const std::int64_t stride = stage == 0 ? 1 : 2;
  const std::int64_t count = options.layers[stage];
  return options.block == ResNetBlock::kBasic
             ? make_blocks<BasicBlock>(count, width, stride, channels)
             : make_blocks<Bottleneck>(count, width, stride, channels);
}

ResNetImpl::ResNetImpl(const ResNetOptions& options) : stem_(options.stem) {
  for (const std::int64_t count : options.layers) {
    if (count < 1) throw ConfigError(str("ResNet: every stage needs a block, got ", count));
  }
  if (options.num_classes < 1) {
    throw ConfigError(str("ResNet: num_classes must be at least 1, got ", options.num_classes));
  }
  std::int64_t channels = 64;
  const bool image_net = stem_ == ResNetStem::kImageNet;
  conv1_ = register_module("conv1", convolution(3, channels, image_net ? 7 : 3, image_net ? 2 : 1));
  bn1_ = register_module("bn1", nn::BatchNorm2d(channels));
  for (int stage = 0; stage < 4; ++stage) {
    stages_[stage] = register_module(str("layer", stage + 1), make_stage(options, stage, channels));
  }
  fc_ = register_module("fc", nn::Linear(channels, options.num_classes));
  for (const auto& module : modules(/*include_self=*/false)) {
    if (auto* conv = module->as<nn::Conv2dImpl>()) {
      nn::init::kaiming_normal_(conv->weight, 0.0, torch::kFanOut, torch::kReLU);
    }
  }
}

torch::Tensor ResNetImpl::forward(const torch::Tensor& images) {
  auto x = bn1_->forward(conv1_->forward(images)).relu_();
  if (stem_ == ResNetStem::kImageNet) x = at::max_pool2d(x, 3, 2, 1);
  for (auto& stage : stages_) x = stage->forward(x);
  return fc_->forward(at::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
}

ResNet resnet18(ResNetStem stem, std::int64_t num_classes) {
  return ResNet(ResNetOptions{.stem = stem, .num_classes = num_classes});
}

}  // namespace lockstep
