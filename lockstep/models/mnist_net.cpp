#include <lockstep/models/mnist_net.h>

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

torch::Tensor MnistNetImpl::convolve(const torch::Tensor& images, bool dropout) {
  if (options_.fused_kernels) {
    auto x = conv_pool_relu(images, conv1_->weight, conv1_->bias);
    x = conv_pool_relu(x, conv2_->weight, conv2_->bias);
    // Scaling a whole channel by 0 or 2 commutes with max-pool and ReLU: the dropout that the
    // example puts before them comes after them, on a quarter of the values, with the same random
    // numbers.
    return dropout ? conv2_drop_->forward(x) : x;
  }
  auto x = conv2_->forward(at::relu(at::max_pool2d(conv1_->forward(images), 2)));
  if (dropout) x = conv2_drop_->forward(x);
  return at::relu(at::max_pool2d(x, 2));
}

torch::Tensor MnistNetImpl::forward(const torch::Tensor& images) {
  const bool dropout = options_.dropout && is_training();
  auto x = convolve(images, dropout);
  x = at::relu(fc1_->forward(x.flatten(1)));
  if (dropout) x = at::dropout(x, 0.5, true);
  return at::log_softmax(fc2_->forward(x), 1, torch::kFloat32);
}

}  // namespace lockstep
