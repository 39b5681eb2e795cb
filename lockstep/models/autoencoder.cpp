#include <lockstep/models/autoencoder.h>

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/pooling.h>

namespace lockstep {
namespace {

namespace nn = torch::nn;

constexpr std::int64_t kHiddenChannels = 8;
constexpr std::int64_t kKernel = 5;
constexpr std::int64_t kFirstPool = 4;
constexpr std::int64_t kSecondPool = 5;
static_assert(kFirstPool * kSecondPool == AutoencoderImpl::kStride);

// A 5x5 convolution that keeps height and width.
nn::Conv2d same_convolution(std::int64_t in, std::int64_t out) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, kKernel).padding(kKernel / 2));
}

}  // namespace

AutoencoderImpl::AutoencoderImpl() { AutoencoderImpl::reset(); }

void AutoencoderImpl::reset() {
  // Each layer draws its weights when it is made, so make them one by one in the order of the
  // names.
  encoder_ = register_module("encoder", nn::Sequential());
  encoder_->push_back(same_convolution(3, kHiddenChannels));
  encoder_->push_back(nn::ReLU());
  encoder_->push_back(nn::MaxPool2d(kFirstPool));
  encoder_->push_back(same_convolution(kHiddenChannels, kCodeChannels));
  encoder_->push_back(nn::ReLU());
  encoder_->push_back(nn::MaxPool2d(kSecondPool));
  decoder_ = register_module("decoder", nn::Sequential());
  // No padding, because this kernel is as large as its stride.
  decoder_->push_back(nn::ConvTranspose2d(
      nn::ConvTranspose2dOptions(kCodeChannels, kHiddenChannels, kKernel).stride(kSecondPool)));
  decoder_->push_back(nn::ReLU());
  // This kernel is one pixel larger than its stride: a padding of 1, and one more row and column at
  // the end, make the output four times as large.
  decoder_->push_back(nn::ConvTranspose2d(nn::ConvTranspose2dOptions(kHiddenChannels, 3, kKernel)
                                              .stride(kFirstPool)
                                              .padding(1)
                                              .output_padding(1)));
}

torch::Tensor AutoencoderImpl::encode(const torch::Tensor& images) {
  return encoder_->forward(images);
}

torch::Tensor AutoencoderImpl::forward(const torch::Tensor& images) {
  return decoder_->forward(encode(images));
}

}  // namespace lockstep
