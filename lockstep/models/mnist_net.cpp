#include <lockstep/models/mnist_net.h>

#include <algorithm>

#include <lockstep/models/conv_pool_relu.h>

namespace lockstep {

MnistNetImpl::MnistNetImpl(MnistNetOptions options) : options_(options) { MnistNetImpl::reset(); }

void MnistNetImpl::reset() {
  conv1_ = register_module("conv1", torch::nn::Conv2d(1, 10, 5));
  conv2_ = register_module("conv2", torch::nn::Conv2d(10, 20, 5));
  conv2_drop_ = register_module("conv2_drop", torch::nn::Dropout2d());
  fc1_ = register_module("fc1", torch::nn::Linear(320, 50));
  fc2_ = register_module("fc2", torch::nn::Linear(50, 10));
}

torch::Tensor MnistNetImpl::first_convolution(const torch::Tensor& images) {
  if (options_.fused_kernels) return models::conv_pool_relu(images, conv1_->weight, conv1_->bias);
  return at::relu(at::max_pool2d(conv1_->forward(images), 2));
}

torch::Tensor MnistNetImpl::second_convolution(const torch::Tensor& x, bool dropout) {
  if (options_.fused_kernels) {
    // Scaling a whole channel by 0 or 2 commutes with max-pool and ReLU. The dropout that precedes
    // them in the example is therefore applied after them, on a quarter of the values, with the
    // same random numbers.
    const auto y = models::conv_pool_relu(x, conv2_->weight, conv2_->bias);
    return dropout ? conv2_drop_->forward(y) : y;
  }
  auto y = conv2_->forward(x);
  if (dropout) y = conv2_drop_->forward(y);
  return at::relu(at::max_pool2d(y, 2));
}

torch::Tensor MnistNetImpl::forward_layers(torch::Tensor x, int first, int end, bool training) {
  const bool dropout = options_.dropout && training;
  for (int layer = first; layer < end; ++layer) {
    switch (layer) {
      case 0:
        x = first_convolution(x);
        break;
      case 1:
        x = second_convolution(x, dropout);
        break;
      case 2:
        x = at::relu(fc1_->forward(x.flatten(1)));
        if (dropout) x = at::dropout(x, 0.5, true);
        break;
      default:
        x = at::log_softmax(fc2_->forward(x), 1, torch::kFloat32);
    }
  }
  return x;
}

bool MnistNetImpl::has_fused_layer(int first, int end) const {
  constexpr int kConvolutions = 2;  // these are the first layers
  return options_.fused_kernels && first < std::min(end, kConvolutions);
}

torch::Tensor MnistNetImpl::forward(const torch::Tensor& images) {
  return forward_layers(images, 0, kLayers, is_training());
}

}  // namespace lockstep
