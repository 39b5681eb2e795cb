// The network of PyTorch's classic MNIST example.
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <lockstep/core/export.h>

namespace lockstep {

struct LOCKSTEP_API MnistNetOptions {
  bool dropout = true;  ///< whether the network has its two dropout layers
  /// If on, convolution, max-pool and ReLU run as one kernel where conv_pool_relu() has one. If
  /// off, LibTorch's operations run one by one, as in the Python script. The results agree to
  /// float32 rounding.
  bool fused_kernels = true;
};

/// conv 5x5 1->10, max-pool 2, ReLU; conv 5x5 10->20, dropout of whole channels, max-pool 2, ReLU;
/// linear 320->50, ReLU, dropout; linear 50->10, log_softmax. Parameters have the names, order and
/// initialisation of the Python example: conv1, conv2, fc1, fc2. clone() copies the module.
class LOCKSTEP_API MnistNetImpl : public torch::nn::Cloneable<MnistNetImpl> {
 public:
  explicit MnistNetImpl(MnistNetOptions options = {});

  /// Registers the layers with new random weights. Called by the constructor and by clone().
  void reset() override;

  /// `images` is float [N, 1, 28, 28]. Returns log-probabilities [N, 10], always float32.
  torch::Tensor forward(const torch::Tensor& images);

  /// Computes the layers `first` to `end` - 1 of conv1, conv2, fc1 and fc2, each with the
  /// operations up to the next layer. `x` is the output of the layer before `first`, or the images.
  /// Dropout depends on `training`, not on the mode of the net. With `first` 0 and `end` kLayers,
  /// the result is that of forward() if `training` is the net's mode.
  torch::Tensor forward_layers(torch::Tensor x, int first, int end, bool training);
  static constexpr int kLayers = 4;

  /// Whether any of the layers `first` to `end` - 1 is a convolution that the fused kernel may
  /// compute. The backward of that kernel computes the gradients of input and weights together.
  bool has_fused_layer(int first, int end) const;

 private:
  /// [N, 1, 28, 28] to [N, 10, 12, 12].
  torch::Tensor first_convolution(const torch::Tensor& images);
  /// [N, 10, 12, 12] to [N, 20, 4, 4].
  torch::Tensor second_convolution(const torch::Tensor& x, bool dropout);

  MnistNetOptions options_;
  torch::nn::Conv2d conv1_{nullptr};
  torch::nn::Conv2d conv2_{nullptr};
  torch::nn::Dropout2d conv2_drop_{nullptr};
  torch::nn::Linear fc1_{nullptr};
  torch::nn::Linear fc2_{nullptr};
};
TORCH_MODULE(MnistNet);

}  // namespace lockstep
