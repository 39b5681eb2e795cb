// A small convolutional auto-encoder for photographs.
//
//   Autoencoder net;
//   torch::Tensor code = net->encode(images);      // [N, 3, 160, 160] to [N, 16, 8, 8]
//   torch::Tensor copies = net->forward(images);   // [N, 3, 160, 160] again
#pragma once

#include <cstdint>

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/sequential.h>

#include <lockstep/core/export.h>

namespace lockstep {

/// Encoder: conv 5x5 3->8, ReLU, max-pool 4, conv 5x5 8->16, ReLU, max-pool 5. Decoder: transposed
/// conv 5x5 16->8 with stride 5, ReLU, transposed conv 5x5 8->3 with stride 4. Parameters have the
/// names, order and initialisation of the equivalent nn.Sequential modules in Python: encoder.0,
/// encoder.3, decoder.0, decoder.2. clone() copies the module. Not thread-safe, like every module.
class LOCKSTEP_API AutoencoderImpl : public torch::nn::Cloneable<AutoencoderImpl> {
 public:
  AutoencoderImpl();

  /// Registers the layers with new random weights. Called by the constructor and by clone().
  void reset() override;

  /// Factor by which encode() shrinks each side of an image. Sides must be multiples of it.
  static constexpr std::int64_t kStride = 20;
  /// Channels of the code.
  static constexpr std::int64_t kCodeChannels = 16;

  /// `images` is float [N, 3, H, W] in any memory format, with H and W multiples of kStride.
  /// Returns float [N, 3, H, W]; for other sides, the size of the output differs from that of the
  /// input.
  torch::Tensor forward(const torch::Tensor& images);
  /// Returns the code: float [N, kCodeChannels, H / kStride, W / kStride].
  torch::Tensor encode(const torch::Tensor& images);

 private:
  torch::nn::Sequential encoder_{nullptr};
  torch::nn::Sequential decoder_{nullptr};
};
TORCH_MODULE(Autoencoder);

}  // namespace lockstep
