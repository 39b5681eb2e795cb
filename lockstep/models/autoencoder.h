// A small convolutional auto-encoder for photographs.
//
//   Autoencoder net;
//   torch::Tensor code = net->encode(images);      // [N, 3, 160, 160] to [N, 16, 8, 8]
//   torch::Tensor copies = net->forward(images);   // [N, 3, 160, 160] again
#pragma once

#include <cstdint>

#include <torch/nn.h>

#include <lockstep/core/export.h>

namespace lockstep {

/// Encoder: conv 5x5 3->8, ReLU, max-pool 4, conv 5x5 8->16, ReLU, max-pool 5. Decoder: transposed
/// conv 5x5 16->8 with stride 5, ReLU, transposed conv 5x5 8->3 with stride 4. Parameters have the
/// names, the order and the initialisation of the same nn.Sequential modules in Python: encoder.0,
/// encoder.3, decoder.0, decoder.2. clone() copies it. Not thread-safe, like every module.
class LOCKSTEP_API AutoencoderImpl : public torch::nn::Cloneable<AutoencoderImpl> {
 public:
  AutoencoderImpl();

  /// Registers the layers with new random weights. For the constructor and for clone().
  void reset() override;

  /// Pixels per side of the image for each number of the code: sides must be multiples of it.
  static constexpr std::int64_t kStride = 20;
  /// Channels of the code.
  static constexpr std::int64_t kCodeChannels = 16;

  /// `images` float [N, 3, H, W] in any memory format, H and W multiples of kStride; returns float
  /// [N, 3, H, W]. For other sides the output has another size.
  torch::Tensor forward(const torch::Tensor& images);
  /// The code float [N, kCodeChannels, H / kStride, W / kStride].
  torch::Tensor encode(const torch::Tensor& images);

 private:
  torch::nn::Sequential encoder_{nullptr};
  torch::nn::Sequential decoder_{nullptr};
};
TORCH_MODULE(Autoencoder);

}  // namespace lockstep
